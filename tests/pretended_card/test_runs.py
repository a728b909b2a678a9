"""Whole runs on a pretended card: start, generate, update, sync, sleep, wake, save, kill, resume, evaluate, merge."""

import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tests.pretended_card.conftest import Runner

pytestmark = pytest.mark.timeout(1200)

BFLOAT16 = {"model.dtype": "bfloat16", "rollout.max_log_prob_gap": None}
KL_LOSS = {"algorithm.kl": {"coef": 0.01, "use_kl_loss": True}}
# Two features in one run where they have little to do with each other: a run takes two minutes.
VARIANTS: dict[str, dict[str, Any]] = {
    "bfloat16, critic": {**BFLOAT16, "algorithm.advantage": {"type": "gae"}, "critic": {"global_batch_size": 4}},
    "adapters merged": {**BFLOAT16, **KL_LOSS, "model.lora": {"rank": 2}},
    "adapters beside the weights": {**BFLOAT16, "model.lora": {"rank": 2, "generator_weights": "separate"}},
    "offloaded, one step off": {**KL_LOSS, "trainer.offload": "all", "rollout.staleness": 1},
}


@pytest.mark.parametrize("changes", VARIANTS.values(), ids=VARIANTS)
def test_a_run_trains_evaluates_and_merges(runner: Runner, changes: dict[str, Any]) -> None:
    result = runner.run(changes)
    assert result.code == 0, result.output
    assert [step["step"] for step in result.steps()] == [1, 2]
    assert all(step["actor/grad_norm"] > 0.0 for step in result.steps())
    assert (result.folder / "report.html").is_file()


def test_a_killed_run_goes_on_from_its_checkpoint(runner: Runner) -> None:
    process = runner.start({})
    try:
        saved = _first_checkpoint(runner, process)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    before = saved.stat().st_mtime_ns
    assert not list(runner.runs.glob("*/report.html")), "the run had ended before it was killed"
    result = runner.run({})
    assert result.code == 0, result.output
    assert [step["step"] for step in result.steps()] == [1, 2]
    assert "training-continues" in (result.folder / "events.jsonl").read_text(), "the second call began from the start"
    assert not saved.exists() or saved.stat().st_mtime_ns == before, "the first step was saved once more"


def _first_checkpoint(runner: Runner, process: "subprocess.Popen[bytes]") -> Path:
    """The manifest of the first step's checkpoint, as soon as it is there."""
    while process.poll() is None:
        for manifest in runner.runs.glob("*/checkpoints/*/manifest.json"):
            return manifest
        time.sleep(0.05)
    raise AssertionError(f"the run ended before it was killed:\n{runner.output.read_text()}")
