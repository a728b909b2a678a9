"""A loss of workers is reported once, with what it cost, and names the machine on which it happens again and again."""

import logging
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rl_core.records.metrics_log import LOST_EVENT, JsonLines, RunLogs, read
from rl_core.run_directory import RunDirectory
from rl_core.workers.protocol import LostWorkers, WorkerDied
from tasks.context import RunContext
from tasks.losses import losses_reported
from tasks.results.run_facts import losses_in_words


def context_of(folder: Path, *, saved: Sequence[int] = ()) -> RunContext:
    """An open run with checkpoints of these steps."""
    checkpoints = [SimpleNamespace(step=step) for step in saved]
    session = SimpleNamespace(store=SimpleNamespace(complete=lambda: checkpoints))
    return cast(RunContext, SimpleNamespace(run=RunDirectory(folder), session=session))


def death(machine: str, cause: str = "SIGKILL", stacks: str = "") -> WorkerDied:
    lost = LostWorkers(names=f"worker 1 of 2 (process 7 on {machine})", machines=[machine], cause=cause, stacks=stacks)
    return WorkerDied(f"{lost.names} ended during update: {cause}.", lost)


def lose(context: RunContext, error: BaseException, stage: str = "train-epoch-001", *, steps: int = 0) -> None:
    """Train some steps of 100 seconds each, and end with the error."""
    logs = RunLogs(context.run)
    with suppress(type(error)), losses_reported(context, stage):
        first = 1 + max((line["step"] for line in read(context.run.metrics)), default=0)
        for step in range(first, first + steps):
            logs.log_timing(step, {"total_s": 100.0})
            logs.log_step(step, {"reward/overall": 0.0})
        raise error


def events_of(context: RunContext) -> list[dict[str, Any]]:
    return [event for event in read(context.run.events) if event["kind"] == LOST_EVENT]


def test_a_loss_in_training_is_a_warning_and_an_event_with_its_cost(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    context = context_of(tmp_path, saved=[2, 4])
    lose(context, death("a"), steps=6)
    (event,) = events_of(context)
    assert (event["workers"], event["machines"]) == ("worker 1 of 2 (process 7 on a)", ["a"])
    assert (event["cause"], event["stage"], event["step"], event["steps"]) == ("SIGKILL", "train-epoch-001", 7, 2)
    assert 200 <= event["seconds"] < 260
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert record.message.startswith("step 7: worker 1 of 2 (process 7 on a) ended during update: SIGKILL. 2 finished")
    assert "3 min 2" in record.message
    lose(context, death("a"))  # before the next attempt has done anything
    assert (events_of(context)[1]["steps"], events_of(context)[1]["seconds"] < 60) == (0, True)
    assert losses_in_words(context.run).startswith("Workers were lost 2 times on a: 2 finished step(s) and 3 min 2")


def test_a_loss_elsewhere_names_the_stage(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    context = context_of(tmp_path)
    error = RuntimeError("no responses")
    error.__cause__ = death("a")
    lose(context, error, "evaluate-base")
    assert "evaluate-base: no responses 0 finished" in caplog.text
    assert (events_of(context)[0]["step"], events_of(context)[0]["steps"]) == (0, 0)


def test_the_stacks_of_the_threads_are_in_a_file_that_the_warning_and_the_event_name(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    context = context_of(tmp_path)
    stacks = ["Thread 1:\n  File mine.py, line 3, in sleeps", "Fatal Python error: Aborted\n  File b.py"]
    for one in (stacks[0], "", stacks[1]):
        lose(context, death("a", stacks=one))
    assert [event["stacks"] for event in events_of(context)] == ["losses/001.txt", None, "losses/002.txt"]
    assert [(tmp_path / "losses" / f"00{n}.txt").read_text() for n in (1, 2)] == [f"{one}\n" for one in stacks]
    messages = [record.message for record in caplog.records]
    assert [str(tmp_path / "losses" / "001.txt") in message for message in messages] == [True, False, False]
    assert not any("\n" in message or ".py" in message for message in messages)


@pytest.mark.parametrize("error", [RuntimeError("CUDA"), WorkerDied("ended long ago"), KeyboardInterrupt()])
def test_any_other_end_is_no_loss(tmp_path: Path, error: BaseException) -> None:
    context = context_of(tmp_path)
    lose(context, error)
    assert events_of(context) == []
    assert losses_in_words(context.run) == ""


LOSSES = st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from([60.0, 7200.0])), max_size=6)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(LOSSES)
def test_three_within_an_hour_name_the_machine_that_they_have_in_common(
    tmp_path_factory: pytest.TempPathFactory, caplog: pytest.LogCaptureFixture, earlier: list[tuple[str, float]]
) -> None:
    context = context_of(tmp_path_factory.mktemp("run"))
    for machine, ago in earlier:
        event = {"kind": LOST_EVENT, "time": time.time() - ago, "machines": [machine], "steps": 0, "seconds": 0.0}
        JsonLines(context.run.events).append(event)
    caplog.clear()
    lose(context, death("a"))
    recent = [machine for machine, ago in earlier if ago < 3600] + ["a"]
    for machine in "ab":
        assert (f"losses of the last hour were on {machine}: look there" in caplog.text) == (recent.count(machine) >= 3)
