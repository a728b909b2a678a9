"""What torch's own allocator takes with the geometry of published models: the committed peaks are measured again."""

import json
import subprocess
import sys
from typing import Any

import pytest

from rl_core.environment import ALLOCATOR
from tests.pretended_card.card import Card
from tests.pretended_card.conftest import ROOT

COMMITTED: list[dict[str, Any]] = json.loads((ROOT / "benchmarks/results/gpu_memory.json").read_text())["rows"]
# 3B with all weights and with LoRA on one GPU, 7B on the first of eight, 32B on the first of sixteen.
AGAIN = [
    next(at for at, row in enumerate(COMMITTED) if size in row["model"] and row["trained"] == trained)
    for size, trained in (("-3B-", "all weights"), ("-3B-", "LoRA"), ("-7B-", "all weights"), ("-32B-", "all weights"))
]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("number", AGAIN)
def test_the_peaks_are_those_that_the_forecast_is_held_to(card: Card, number: int) -> None:
    environment = card.environment(gib=400.0) | {
        # Nothing that is large is computed or copied, so that a large model takes no memory of this machine.
        "PRETENDED_CARD_COMPUTE_MIB": "1",
        "PRETENDED_CARD_LARGEST_COPY_MIB": "1",
    }
    environment |= ALLOCATOR
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.gpu_memory", "--only", str(number)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    measured = json.loads(done.stdout.strip().rpartition("\n")[2])["gib"]
    assert measured == pytest.approx(COMMITTED[number]["gib"], rel=0.02, abs=0.05)
