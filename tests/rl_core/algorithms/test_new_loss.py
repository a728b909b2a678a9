"""A new built-in loss is one file and one line, and passes the laws of every loss."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
LOSS = '''"""Truncated importance sampling: the ratio as a bounded weight."""

import math
from typing import Literal

from pydantic import Field

from rl_core.algorithms.policy_loss import PolicyLoss, PolicyLossSection, ResponseTokens


class TruncatedLoss(PolicyLossSection):
    """Truncated importance sampling."""

    type: Literal["truncated"] = "truncated"
    """Selects truncated importance sampling."""
    limit: float = Field(default=2.0, gt=1.0)
    """Largest ratio."""

    def loss(self, tokens: ResponseTokens) -> PolicyLoss:
        """L = -A min(r, limit)."""
        ratio = tokens.log_ratio.clamp(max=math.log(self.limit)).exp()
        return PolicyLoss(per_token=-tokens.advantages * ratio)
'''
LINE = "from rl_core.algorithms.losses.truncated import TruncatedLoss as TruncatedLoss\n"


@pytest.fixture
def sources(tmp_path) -> Path:
    """A copy of the sources with a new loss."""
    for folder in ("rl_core", "sightline_tools", "tests/rl_core/algorithms", "tests/golden"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for file in ("pyproject.toml", "tests/rl_core/built_in.py"):
        shutil.copy(ROOT / file, tmp_path / file)
    losses = tmp_path / "rl_core" / "algorithms" / "losses"
    (losses / "truncated.py").write_text(LOSS)
    entries = (losses / "__init__.py").read_text()
    last = "from rl_core.algorithms.policy_loss"
    (losses / "__init__.py").write_text(entries.replace(last, LINE + last))
    return tmp_path


def python(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments], cwd=folder, capture_output=True, text=True, timeout=250, check=False
    )


def test_a_new_loss_is_a_choice_of_the_config_and_stands_on_its_page(sources):
    assert python(sources, "-m", "sightline_tools.docs.reference", "page.md").returncode == 0
    page = (sources / "page.md").read_text()
    assert "## `algorithm.loss` with `type: truncated`\n\nTruncated importance sampling." in page
    assert "| `limit` | number | `2.0` | > 1.0 | Largest ratio. |" in page
    script = (
        "from rl_core.config.algorithm import AlgorithmConfig\n"
        "print(AlgorithmConfig.model_validate({'loss': {'type': 'truncated', 'limit': 3.0}}).loss)"
    )
    assert python(sources, "-c", script).stdout == "type='truncated' limit=3.0\n"
