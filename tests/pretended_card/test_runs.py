"""Whole runs on a pretended card: start, generate, update, sync, sleep, wake, save, kill, resume, evaluate, merge."""

import os
import signal
import time
from typing import Any

import pytest

from tests.pretended_card.conftest import Runner

pytestmark = pytest.mark.timeout(1200)

BFLOAT16 = {"model.dtype": "bfloat16", "rollout.max_log_prob_gap": None}
VARIANTS: dict[str, dict[str, Any]] = {
    "bfloat16": BFLOAT16,
    "adapters merged": {
        **BFLOAT16,
        "model.lora": {"rank": 2},
        "algorithm.kl": {"coef": 0.01, "use_kl_loss": True},
    },
    "adapters beside the weights": {"model.lora": {"rank": 2, "generator_weights": "separate"}},
    "offloaded": {"trainer.offload": "all", "algorithm.kl": {"coef": 0.01, "use_kl_loss": True}},
    "with a critic": {"algorithm.advantage": {"type": "gae"}},
    "one step off": {"rollout.staleness": 1},
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
        _wait_for_checkpoint(runner)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    result = runner.run({})
    assert result.code == 0, result.output
    assert [step["step"] for step in result.steps()] == [1, 2]


def _wait_for_checkpoint(runner: Runner) -> None:
    until = time.monotonic() + 600
    while time.monotonic() < until:
        if list(runner.runs.glob("*/checkpoints/*1/manifest.json")):
            return
        time.sleep(0.2)
    raise TimeoutError("the first step was not saved")
