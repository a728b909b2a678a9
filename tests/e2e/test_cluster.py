"""Several workers train one model from the command line. One that dies or hangs costs a retry, and no number."""

import signal
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from rl_core.run_directory import RunDirectory
from tests.e2e.processes import has_recorded, run_of, started, wait_until
from tests.e2e.runs import environment, fingerprint
from tests.results import differences

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

TWO_WORKERS = (
    "cluster={devices: 2, dealing: dynamic, hang_timeout_seconds: 60}",
    "cold_start.steps=20",
    "trainer={total_epochs: 5, save_freq: 1, val_freq: -1}",
)


def workers_of(process: psutil.Process) -> list[psutil.Process]:
    return [child for child in process.children(recursive=True) if name_of(child).startswith("ray::RankActor")]


def name_of(process: psutil.Process) -> str:
    """Empty if it has ended: Ray starts many that do so at once."""
    with suppress(psutil.NoSuchProcess):
        return process.name()
    return ""


def run_to_its_end(home: Path, *, kills_a_worker: bool) -> RunDirectory:
    """A run of two workers. After the first step one of them is killed; one of those after them stops for ever."""
    arguments, run = run_of(home, *TWO_WORKERS)
    output = home / "output.txt"
    with started(arguments, environment(home) | {"OMP_NUM_THREADS": "1"}, output) as running:
        if kills_a_worker:
            wait_until(lambda: has_recorded(run, 1) or running.poll() is not None, "a step is recorded", seconds=300)
            found = workers_of(psutil.Process(running.pid))
            assert len(found) == 2, output.read_text()
            found[1].send_signal(signal.SIGKILL)
            wait_until(lambda: has_recorded(run, 4) or running.poll() is not None, "training goes on", seconds=300)
            found = workers_of(psutil.Process(running.pid))
            assert len(found) == 2, output.read_text()
            found[0].send_signal(signal.SIGSTOP)
        left = psutil.Process(running.pid)
        wait_until(lambda: workers_of(left) or running.poll() is not None, "workers run", seconds=300)
        children = left.children(recursive=True)
        assert running.wait(timeout=600) == 0, output.read_text()
        assert psutil.wait_procs(children, timeout=30)[1] == [], "processes outlive their run"
    return run


def test_workers_that_die_or_stop_are_replaced_and_the_results_are_those_of_an_unbroken_run(tmp_path: Path) -> None:
    homes = [tmp_path / name for name in ("unbroken", "killed")]
    for home in homes:
        home.mkdir()
    unbroken, killed = (run_to_its_end(home, kills_a_worker=home.name == "killed") for home in homes)
    log = (killed.root / "run.log").read_text()
    assert "worker 1 of 2 (process" in log, "the log names the one that died"
    # In whichever call it was stopped:
    assert "(cluster.hang_timeout_seconds); those that it waits for are doing this" in log
    assert "it does not answer" in log
    assert "The other workers have been ended" not in (unbroken.root / "run.log").read_text()
    assert differences(fingerprint(unbroken), fingerprint(killed)) == []
