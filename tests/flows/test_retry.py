"""A flow run whose training failed in epoch 3, and that is then stopped while it evaluates, is retried: nothing is done
twice."""

import logging
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from prefect import State
from prefect.client.orchestration import get_client
from prefect.flow_engine import run_flow
from prefect.states import Scheduled

from flows.baseline import baseline
from rl_core.evaluation.response_file import ResponseFile
from rl_core.isolation.failed_share import TooManyFailures
from rl_core.records.metrics_log import read
from rl_core.run_directory import RunDirectory
from tests.flows.artifacts import task_runs_of

pytestmark = [pytest.mark.usefixtures("prefect_server", "at_the_root"), pytest.mark.timeout(600)]

OVERRIDES = [
    "tracking.mlflow_uri=null",
    "cold_start=null",
    "reward.function=tests/flows/breaking_reward.py:score",
    "data.rollout_batch_size=12",  # a step an epoch
    "trainer.total_epochs=3",
    "trainer.val_freq=-1",
    "evaluation.modes=[greedy]",
]


@dataclass(frozen=True)
class Parameters:
    """Of the flow; the run stops before the merge, which these tests are not about."""

    runs_dir: Path
    broken: Path

    def as_dict(self) -> dict:
        return {
            "config": "tests/e2e/configs/small.yaml",
            "overrides": [*OVERRIDES, f"reward.kwargs.broken={self.broken}"],
            "runs_dir": str(self.runs_dir),
            "stages": "evaluate",
        }

    @property
    def run(self) -> RunDirectory:
        (folder,) = [path for path in self.runs_dir.iterdir() if (path / "config.yaml").is_file()]
        return RunDirectory(folder)


class _Breaking(logging.Handler):
    """Makes a file at the moment in which a stage is finished."""

    def __init__(self, stage: str, file: Path) -> None:
        super().__init__()
        self._stage = stage
        self._file = file

    def emit(self, record: logging.LogRecord) -> None:
        if record.getMessage().startswith(f"{self._stage}: finished in"):
            self._file.touch()


@contextmanager
def broken_after(stage: str, file: Path) -> Iterator[None]:
    handler = _Breaking(stage, file)
    logging.getLogger("tasks.staging").addHandler(handler)
    try:
        yield
    finally:
        logging.getLogger("tasks.staging").removeHandler(handler)


@contextmanager
def stopped_after_answers(count: int) -> Iterator[None]:
    """SIGTERM comes as soon as `count` responses of an evaluation are kept."""
    write = ResponseFile._keeping

    def keeping(self, rollouts, requests):
        for number, rollout in enumerate(write(self, rollouts, requests), start=1):
            if number == count:
                signal.raise_signal(signal.SIGTERM)
            yield rollout

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ResponseFile, "_keeping", keeping)
        yield


def retried(state: State) -> State:
    """What `prefect flow-run retry` and the page's button do: the same flow run, run again."""
    flow_run_id = state.state_details.flow_run_id
    with get_client(sync_client=True) as client:
        client.set_flow_run_state(flow_run_id, Scheduled(name="AwaitingRetry"), force=True)
        flow_run = client.read_flow_run(flow_run_id)
    return run_flow(baseline, flow_run=flow_run, parameters=flow_run.parameters, return_type="state")


def task_states(state: State, *, attempt: int) -> dict[str, str]:
    """Task run name -> name of its final state, of one attempt at the flow run."""
    runs = sorted(task_runs_of(state.state_details.flow_run_id), key=lambda run: run.start_time)
    return {run.name.removeprefix("small: "): run.state_name for run in runs if run.flow_run_run_count == attempt}


def test_retries_after_a_failure_in_epoch_3_and_a_stop_in_the_evaluation_make_the_rest_alone(tmp_path: Path) -> None:
    broken = Parameters(tmp_path / "broken", tmp_path / "judge-is-down")
    with broken_after("train-epoch-002", broken.broken):
        failed = baseline(**broken.as_dict(), return_state=True)
    run = broken.run
    assert failed.is_failed()
    assert isinstance(failed.result(raise_on_failure=False), TooManyFailures)
    assert "the judge does not answer" in failed.message
    assert f"to continue: sightline run --resume {run.name}" in failed.message
    assert task_states(failed, attempt=1)["train epoch 3"] == "Failed"
    kept = {path: path.stat().st_mtime_ns for path in (run.data / "manifest.json", run.rollouts(1), run.rollouts(2))}
    broken.broken.unlink()

    with stopped_after_answers(3):
        stopped = retried(failed)

    assert stopped.is_cancelled() and stopped.name == "Interrupted"
    second_states = task_states(stopped, attempt=2)
    assert second_states.pop("evaluate base") == "Failed"
    assert second_states == {
        "preflight": "Completed",
        "prepare data and model": "Cached",
        "train epoch 1": "Cached",
        "train epoch 2": "Cached",
        "train epoch 3": "Completed",
    }
    second = run.log.read_text().partition("the run failed")[2]
    assert "prepare: finished before" in second and "train-epoch-002: finished before" in second
    assert "train-epoch-003: finished in" in second
    assert "prepare: finished in" not in second and "train-epoch-002: finished in" not in second
    assert {path: path.stat().st_mtime_ns for path in kept} == kept
    assert [record["step"] for record in read(run.timings)] == [1, 2, 3]
    (resumed,) = [event for event in read(run.events) if event["kind"] == "resumed"]
    assert resumed["step"] == 2 and "it failed: " in resumed["cause"] and "judge does not answer" in resumed["cause"]

    state = retried(stopped)

    assert state.is_completed(), state
    third_states = task_states(state, attempt=3)
    assert [name for name, of_task in third_states.items() if of_task == "Cached"] == [
        "prepare data and model",
        "train epoch 1",
        "train epoch 2",
        "train epoch 3",
    ]
    assert "3 of 10 responses were generated before" in run.log.read_text()
    assert not list(run.evaluation("base").parent.glob("*.jsonl"))
