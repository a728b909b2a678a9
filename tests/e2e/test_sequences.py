"""Commands in drawn orders lose nothing that was finished (tests/e2e/sequences.py draws more of them)."""

import random
from pathlib import Path

import pytest

from tests.e2e.sequences import Sequence

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


@pytest.mark.parametrize("seed", range(1, 5))
def test_no_sequence_of_commands_loses_finished_work(seed: int, tmp_path: Path) -> None:
    assert Sequence(tmp_path, random.Random(seed)).play(5) == []
