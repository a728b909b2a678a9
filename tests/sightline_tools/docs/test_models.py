"""The page of the model families is current, and names every family and every reason."""

from pathlib import Path

from rl_core.families.refused import REASONS
from rl_core.families.registry import FAMILIES
from sightline_tools.docs.models import page

PAGE = Path(__file__).parents[3] / "docs" / "models.md"


def test_the_committed_page_is_current() -> None:
    assert PAGE.read_text() == page(), "run make docs"
    assert all(f"`{family.model_type}`" in page() for family in FAMILIES.values())
    assert all(f"| `{model_type}` | {reason} |" in page() for model_type, reason in REASONS.items())
