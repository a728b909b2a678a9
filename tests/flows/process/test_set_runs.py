"""The runs of a set at the same time. Stand-ins take the place of their processes: nothing is trained."""

from pathlib import Path

import pytest
from prefect import State

from flows.baseline_seeds import baseline_seeds
from tests.flows.process.stand_in import NOTES, put_in_place
from tests.flows.test_reproduce import BASELINE, expect_task_states

pytestmark = pytest.mark.usefixtures("prefect_server", "at_the_root")

OVERRIDES = ["tracking.mlflow_uri=null", "cluster.threads=1"]


@pytest.fixture(autouse=True)
def _two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {1000, 1001})  # whose siblings are not known


def run_seeds(runs_dir: Path, seeds: str, *overrides: str) -> State:
    asked = {"config": BASELINE, "overrides": [*OVERRIDES, *overrides], "seeds": seeds, "runs_dir": str(runs_dir)}
    return baseline_seeds(**asked, return_state=True)


def test_two_runs_share_two_cores_and_the_next_ones_wait_for_the_data_and_for_a_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    put_in_place(tmp_path, monkeypatch, "together")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    state = run_seeds(tmp_path / "runs", "1-3")
    assert state.is_failed() and "seed 3 did not finish" in state.message, state
    notes = (tmp_path / "runs" / NOTES).read_text().splitlines()
    assert sorted(notes) == sorted(f"{seed} {what}" for seed in (1, 2, 3) for what in ("starts", "ends")), notes
    assert notes.index("2 starts") < notes.index("1 ends") < notes.index("3 starts") < notes.index("2 ends"), notes
    expect_task_states(state, {f"seed {seed}": "Failed" for seed in (1, 2, 3)})
    printed = capsys.readouterr().out.splitlines()
    assert [line for line in printed if line.startswith("seed")] == [f"seed {seed}: on none" for seed in (1, 2, 3)]


def test_a_signal_stops_every_run_that_is_carried_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_in_place(tmp_path, monkeypatch, "stopped")
    state = run_seeds(tmp_path / "runs", "1-3")
    assert state.is_cancelled() and state.name == "Interrupted", state
    assert "stopped by SIGTERM" in state.message and "sightline run --resume" in state.message
    assert sorted((tmp_path / "runs" / NOTES).read_text().splitlines()) == ["1 stops", "2 stops"]
