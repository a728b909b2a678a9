"""A run whose model calls a tool: from the cold start that teaches the call to the merged model, and again after a
kill."""

import signal
import subprocess
from pathlib import Path

import pytest

from rl_core.records.metrics_log import read
from rl_core.records.rollout_files import read_rollouts
from tests.e2e.runs import REPOSITORY, RESULTS, command, environment, run_arguments, sightline, the_run
from tests.results import differences, hashes

TOOLS = REPOSITORY / "tests" / "e2e" / "configs" / "tools.yaml"


@pytest.mark.slow
@pytest.mark.e2e
@pytest.mark.timeout(1200)
def test_a_run_with_a_tool_is_equal_after_a_kill_and_its_model_is_verified(tmp_path: Path) -> None:
    """Its rollouts hold what the tool has shown, the merged model gives the probe's log-probs in transformers and vLLM,
    and a run that is killed inside a step and goes on leaves equal bytes."""
    found = []
    for name in ("whole", "killed"):
        home = tmp_path / name
        home.mkdir()
        arguments = run_arguments(home, TOOLS)
        if name == "killed":
            killed = ("tests/e2e/killer.py", "after", "rollouts/step-000003")
            done = subprocess.run(
                command(*arguments, launcher=killed), env=environment(home), cwd=REPOSITORY, check=False
            )
            assert done.returncode == -signal.SIGKILL
        sightline(*arguments, home=home, timeout=900)
        run = the_run(home / "runs")
        found.append(hashes(run.root, RESULTS))
        steps = [one for one in read(run.metrics) if "tools/calls" in one]
        assert [one["step"] for one in steps] == [1, 2, 3, 4, 5, 6]
        assert min(one["actor/grad_norm"] for one in steps) > 0
        assert steps[0]["tools/images"] > 0.3, "the cold start has taught the call"
        shown = [put for record in read_rollouts(run.rollouts(6)) for put in record.insertions if put.image_uids]
        assert shown
        assert (run.merged_model / "config.json").is_file()
    assert differences(*found) == []
