"""A run's line tells how it stands; whatever lies in its folder, the lines of the others are there."""

from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_core.run_directory import RunDirectory
from rl_core.run_lock import RunLock
from tasks.attempts import remember
from tasks.housekeeping.overview import RunStatus, overview, overviews
from tests.tasks.housekeeping.runs import NOW, aged, failed, finished, readable


def test_a_finished_run_shows_its_accuracies_and_its_last_step(tmp_path: Path) -> None:
    found = overview(aged(finished(tmp_path), days=3))
    assert (found.status, found.step) == (RunStatus.FINISHED, 2)
    assert (found.base, found.trained) == (0.0, 0.5)
    assert abs(NOW - found.written_at - timedelta(days=3)) < timedelta(minutes=1)


@pytest.mark.parametrize(
    ("end", "status"),
    [
        ("failed", RunStatus.FAILED),
        ("interrupted", RunStatus.INTERRUPTED),
        ("cancelled", RunStatus.CANCELLED),
        ("completed", RunStatus.UNFINISHED),
        (None, RunStatus.CRASHED),
    ],
)
def test_an_unfinished_run_shows_how_its_last_attempt_ended(tmp_path: Path, end: str, status: RunStatus) -> None:
    run = readable(failed(tmp_path, "broken", end=end, cause="no room\nand more"), finished(tmp_path))
    found = overview(run)
    assert found.status is status
    assert found.trained is None and found.step is None
    assert found.remark == {"failed": "no room", None: "its process is gone"}.get(end, "")


def test_a_run_that_a_process_holds_is_running(tmp_path: Path) -> None:
    run = finished(tmp_path)
    with RunLock(run.lock):
        assert overview(run).status is RunStatus.RUNNING
    assert overview(run).status is RunStatus.FINISHED


@pytest.fixture(scope="module")
def two_runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunDirectory, RunDirectory]:
    folder = tmp_path_factory.mktemp("runs")
    return finished(folder), finished(folder, "seed=2")


@given(
    data=st.binary(max_size=40),
    file=st.sampled_from(["config.yaml", "flow-run.json", "metrics.jsonl", "evaluations/base/result.json", "lock"]),
)
def test_a_damaged_file_costs_its_own_line_at_most(
    two_runs: tuple[RunDirectory, RunDirectory], data: bytes, file: str
) -> None:
    good, bad = two_runs
    path = bad.root / file
    before = path.read_bytes() if path.is_file() else None
    path.write_bytes(data)
    try:
        lines = {found.run.name: found for found in overviews(bad.root.parent)}
    finally:
        path.unlink() if before is None else path.write_bytes(before)
    assert lines[good.name].status is RunStatus.FINISHED
    assert lines[bad.name].status in RunStatus


def test_the_rest_of_a_killed_removal_is_no_run(tmp_path: Path) -> None:
    run = finished(tmp_path)
    remember(run, "00000000-0000-0000-0000-000000000000")
    run.root.rename(tmp_path / ".run.tmp-1")
    assert list(overviews(tmp_path)) == []
