"""A run whose model calls a tool: from the cold start that teaches the call to the merged model, and again after a
kill."""

import signal
import subprocess
from pathlib import Path

import pytest

from rl_core.evaluation.items import read_items
from rl_core.evaluation.result import read_evaluation
from rl_core.records.metrics_log import read
from rl_core.records.rollout_files import read_rollouts
from tests.e2e.runs import REPOSITORY, RESULTS, command, environment, run_arguments, sightline, the_run
from tests.results import differences, hashes

TOOLS = REPOSITORY / "tests" / "e2e" / "configs" / "tools.yaml"
TABLE = (
    "tools.environment=tests/e2e/configs/zoom_lessons.py:Table",
    *("cold_start.source.kwargs.with_table=true", "actor.optim.lr=1.0e-4"),
)
OWN = 'tools.use=["tests/e2e/configs/zoom_lessons.py:zoom"]'


@pytest.mark.slow
@pytest.mark.e2e
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    "overrides", [("evaluation.tools=none",), (OWN,), TABLE], ids=["built in", "of a user's", "an environment"]
)
def test_a_run_with_a_tool_is_equal_after_a_kill_and_its_model_is_verified(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, overrides: tuple[str, ...]
) -> None:
    """Its rollouts hold what the tool has shown, the merged model gives the probe's log-probs in transformers and vLLM,
    and a run that is killed where all calls of a step are answered, and goes on, leaves equal bytes and has asked a
    user's tool as often. Held-out rows are answered with the tool or, if the config says so, without."""
    found, asked = [], []
    for name in ("whole", "killed"):
        home = tmp_path / name
        home.mkdir()
        calls = home / "calls"
        calls.touch()
        monkeypatch.setenv("CALLS_OF_ZOOM", str(calls))
        arguments = run_arguments(home, TOOLS, *overrides)
        if name == "killed":
            killed = ("tests/e2e/killer.py", "before", "rollouts/step-000003")
            done = subprocess.run(
                command(*arguments, launcher=killed), env=environment(home), cwd=REPOSITORY, check=False
            )
            assert done.returncode == -signal.SIGKILL
        sightline(*arguments, home=home, timeout=900)
        run = the_run(home / "runs")
        found.append(hashes(run.root, RESULTS))
        asked.append(sorted(calls.read_text().split()))
        steps = [one for one in read(run.metrics) if "tools/calls" in one]
        assert [one["step"] for one in steps] == [1, 2, 3, 4, 5, 6]
        assert min(one["actor/grad_norm"] for one in steps) > 0
        assert steps[0]["tools/images"] > 0.3, "the cold start has taught the call"
        records = read_rollouts(run.rollouts(1))
        shown = [put for record in records for put in record.insertions if put.image_uids]
        assert shown
        assert (run.merged_model / "config.json").is_file()
        held_out = [*read_items(run.validation(3)), *read_evaluation(run.evaluation("base"))["greedy"]]
        has_tools = "evaluation.tools=none" not in overrides
        assert any(item.turns for item in held_out) == has_tools
        assert {"zoom(" in item.prompt for item in held_out} == {has_tools}
        assert {(record.opening is not None, len(record.image_uids)) for record in records} == {
            (True, 2) if overrides == TABLE else (False, 1)
        }
    assert differences(*found) == []
    assert asked[0] == asked[1]
    assert bool(asked[0]) == (OWN in overrides)
