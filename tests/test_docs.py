"""What the code says about the documentation is there."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]
SOURCES = sorted(
    path
    for room in ("rl_core", "tasks", "flows", "sightline_tools", "tests", "benchmarks")
    for path in (REPOSITORY / room).rglob("*.py")
)
"""Every Python file whose docstrings may name a section."""
REFERENCE = re.compile(r'(docs/[\w-]+\.md),\s+"([^"]+)"')


def references() -> list[tuple[str, str, str]]:
    """(source, page, heading) of every section that a docstring or a comment names."""
    return [
        (str(source.relative_to(REPOSITORY)), page, " ".join(heading.split()))
        for source in SOURCES
        for page, heading in REFERENCE.findall(re.sub(r"\n\s*#\s", "\n", source.read_text()))
    ]


def headings(page: str) -> list[str]:
    return re.findall(r"^#+ (.+)$", (REPOSITORY / page).read_text(), flags=re.MULTILINE)


@pytest.mark.parametrize(("source", "page", "heading"), references())
def test_a_section_that_the_code_names_is_there(source: str, page: str, heading: str) -> None:
    assert heading in headings(page), f"{source} names a section that {page} does not have"


def test_the_picture_of_the_rooms_is_that_of_the_import_contracts(tmp_path: Path) -> None:
    """`make docs` writes it again."""
    subprocess.run(
        [sys.executable, "-m", "sightline_tools.docs.rooms", str(tmp_path / "rooms.svg")], cwd=REPOSITORY, check=True
    )
    assert (tmp_path / "rooms.svg").read_text() == (REPOSITORY / "docs" / "images" / "rooms.svg").read_text()


def test_the_code_names_sections_and_no_numbers() -> None:
    """A number says nothing to a reader who has no list of them, and goes wrong when the list changes."""
    assert len(references()) > 20
    numbered = re.compile(r"\bcontract \d")
    assert not [str(path) for path in SOURCES if path != Path(__file__) and numbered.search(path.read_text())]
