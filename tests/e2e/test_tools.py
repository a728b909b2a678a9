"""A run whose model calls a tool: from the cold start that teaches the call to the merged model, and again after a
kill."""

import os
import random
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest

from rl_core.evaluation.items import read_items
from rl_core.evaluation.result import read_evaluation
from rl_core.records.metrics_log import read
from rl_core.records.rollout_files import read_rollouts
from tests.e2e.processes import prefect_server
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
    "overrides", [("evaluation.tools=none",), (OWN,), TABLE], ids=["built in", "user code", "an environment"]
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


@pytest.mark.slow
@pytest.mark.e2e
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("hidden_size", [64, 1024])
def test_runs_are_equal_whatever_time_their_tools_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hidden_size: int
) -> None:
    """Two processes answer, each call after a time that nothing repeats. From 512 on a response depends on the list
    that it is generated with, so a round must not depend on which turn was finished first."""
    heads = max(2, hidden_size // 64)
    sizes = {"hidden_size": hidden_size, "num_heads": heads, "num_key_value_heads": heads // 2}
    overrides = [OWN, "actor.optim.lr=1.0e-4", "trainer.max_steps=3"]
    overrides += [f"model.source.{key}={value}" for key, value in sizes.items()]
    overrides += ["cold_start.optim.lr=1.0e-3"] if hidden_size == 1024 else []
    monkeypatch.setenv("SECONDS_OF_ZOOM", "0.5")
    found, orders = [], []
    for name in ("one", "other"):
        home = tmp_path / name
        home.mkdir()
        monkeypatch.setenv("CALLS_OF_ZOOM", str(home / "calls"))
        sightline(*run_arguments(home, TOOLS, *overrides), home=home, timeout=1500)
        run = the_run(home / "runs")
        assert any(put.image_uids for record in read_rollouts(run.rollouts(3)) for put in record.insertions)
        found.append(hashes(run.root, RESULTS))
        orders.append((home / "calls").read_text().split())
    assert differences(*found) == []
    assert orders[0] != orders[1], "else the test shows nothing"


@pytest.mark.slow
@pytest.mark.e2e
@pytest.mark.timeout(1200)
def test_continuous_conversations_are_those_of_rounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To the bit at a size at which a response depends on its request alone, with a tool that takes its time."""
    monkeypatch.setenv("SECONDS_OF_ZOOM", "0.5")
    monkeypatch.setenv("CALLS_OF_ZOOM", str(tmp_path / "calls"))
    found = []
    for schedule in ("rounds", "continuous"):
        home = tmp_path / schedule
        home.mkdir()
        arguments = run_arguments(home, TOOLS, OWN, "trainer.max_steps=3", f"tools.schedule={schedule}")
        sightline(*arguments, home=home, timeout=900)
        found.append(hashes(the_run(home / "runs").root, RESULTS))
    assert differences(*found) == []


@pytest.mark.slow
@pytest.mark.e2e
@pytest.mark.timeout(3600)
def test_twenty_kills_cost_no_bits_and_repeat_no_call_that_was_answered(tmp_path: Path) -> None:
    """Each kill comes a little after a drawn number of calls, so in the middle of a step's. Only calls whose answers
    have not arrived, one in each process, may be made again."""
    kills, workers, draw = 20, 2, random.Random(1)
    found, made = [], []
    with prefect_server(tmp_path, tmp_path / "server.txt") as (_, variables):
        for name in ("whole", "killed"):
            home = tmp_path / name
            home.mkdir()
            calls = home / "calls"
            calls.touch()
            arguments = run_arguments(home, TOOLS, OWN, f"tools.workers={workers}")
            variables |= {"CALLS_OF_ZOOM": str(calls), "SECONDS_OF_ZOOM": "0.3"}
            for moment in sorted(draw.sample(range(2, made[0].total()), kills)) if name == "killed" else ():
                seconds = draw.uniform(0.0, 0.2)
                _kill_after(moment, seconds, calls, command(*arguments), variables, home / "output.txt")
            sightline(*arguments, home=home, timeout=900, variables=variables)
            found.append(hashes(the_run(home / "runs").root, RESULTS))
            made.append(Counter(calls.read_text().split()))
    assert differences(*found) == []
    assert made[0] - made[1] == Counter()
    assert (made[1] - made[0]).total() <= kills * workers


def _kill_after(
    moment: int, seconds: float, calls: Path, arguments: list[str], variables: Mapping[str, str], output: Path
) -> None:
    """Start a run, and kill it with all that it has started when so many calls were made altogether, and so many
    seconds have passed."""
    with output.open("wb") as stream:
        process = subprocess.Popen(
            arguments, env=variables, cwd=REPOSITORY, start_new_session=True, stdout=stream, stderr=subprocess.STDOUT
        )
    while len(calls.read_text().splitlines()) < moment:
        assert process.poll() is None, f"the run has ended before it was killed\n{output.read_text()}"
        time.sleep(0.01)
    time.sleep(seconds)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
