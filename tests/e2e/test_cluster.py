"""Several workers train one model from the command line. One that dies or hangs costs a retry, and no number."""

import json
import re
import signal
import socket
from pathlib import Path

import psutil
import pytest

from rl_core.records.metrics_log import read
from rl_core.run_directory import RunDirectory
from tests.e2e.processes import has_recorded, run_of
from tests.e2e.runs import environment, fingerprint
from tests.machines import workers_below
from tests.results import differences
from tests.servers import started, wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(1500)]

TWO_WORKERS = (
    "cluster={devices: 2, dealing: dynamic, hang_timeout_seconds: 150}",
    "trainer={total_epochs: 5, save_freq: 1, val_freq: -1}",
)


def run_to_its_end(home: Path, *overrides: str, kills_a_worker: bool = False) -> RunDirectory:
    """A run of two workers. If it `kills_a_worker`: after the first step one of them is killed; one of those after them
    stops for ever."""
    arguments, run = run_of(home, *TWO_WORKERS, *overrides)
    output = home / "output.txt"
    with started(arguments, environment(home) | {"OMP_NUM_THREADS": "1"}, output) as running:
        if kills_a_worker:
            wait_until(lambda: has_recorded(run, 1) or running.poll() is not None, "a step is recorded", seconds=300)
            found = workers_below(psutil.Process(running.pid))
            assert len(found) == 2, output.read_text()
            found[1].send_signal(signal.SIGKILL)
            wait_until(lambda: has_recorded(run, 4) or running.poll() is not None, "training goes on", seconds=300)
            found = workers_below(psutil.Process(running.pid))
            assert len(found) == 2, output.read_text()
            found[0].send_signal(signal.SIGSTOP)
        left = psutil.Process(running.pid)
        wait_until(lambda: workers_below(left) or running.poll() is not None, "workers run", seconds=300)
        children = left.children(recursive=True)
        assert running.wait(timeout=900) == 0, output.read_text()
        assert psutil.wait_procs(children, timeout=30)[1] == [], "processes outlive their run"
    return run


def test_two_workers_go_through_all_stages_and_leave_nothing(tmp_path: Path) -> None:
    run = run_to_its_end(tmp_path, "trainer.total_epochs=1")
    assert [line["step"] for line in read(run.metrics)] == [1, 2, 3]
    assert all(len(line["workers"]["host"]) == 2 for line in read(run.timings))
    summary = json.loads(run.summary.read_text())
    assert summary["evaluation"]["trained"]["n"] == 10
    assert Path(summary["merged_model"], "config.json").is_file()


def test_workers_that_die_or_stop_are_replaced_and_the_results_are_those_of_an_unbroken_run(tmp_path: Path) -> None:
    homes = [tmp_path / name for name in ("unbroken", "killed")]
    for home in homes:
        home.mkdir()
    unbroken, killed = (run_to_its_end(home, kills_a_worker=home.name == "killed") for home in homes)
    events = [event for event in read(killed.events) if event["kind"] in ("workers-lost", "resumed")]
    lost = events[0]
    assert [event["kind"] for event in events] == ["workers-lost", "resumed"] * 2
    assert re.match(r"worker \d of 2 \(process", lost["workers"]) and lost["machines"] == [socket.gethostname()]
    assert lost["cause"].startswith("its process ended without a word")
    assert (lost["stage"], lost["step"] >= 2, lost["steps"] <= 1) == ("train-epoch-001", True, True)
    recorded = [f"{event['workers']}: {event['cause']}" for event in events[::2]]
    assert [event["cause"] for event in events[1::2]] == recorded
    losses = [event for event in events if event["kind"] == "workers-lost"]
    assert "cluster.hang_timeout_seconds" in losses[1]["cause"]
    output = " ".join((homes[1] / "output.txt").read_text().split())
    assert output.count("of work were lost") == len(losses) == 2, "one warning for each on the terminal"
    assert "training is tried again from its last checkpoint" in output
    assert "Workers were lost 2 times on" in killed.report.read_text()
    log = (killed.root / "run.log").read_text()
    assert f"{lost['workers']} ended during" in log, "the log names the one that died"
    # In whichever call it was stopped:
    assert f"{losses[1]['workers']} did not end it. The other workers have been ended." in log
    assert "it does not answer" in (killed.root / losses[1]["stacks"]).read_text()
    assert f"What was done last is in {killed.root / losses[1]['stacks']}" in log
    assert "it does not answer" not in output, "stacks are no part of a warning"
    assert "The other workers have been ended" not in (unbroken.root / "run.log").read_text()
    assert differences(fingerprint(unbroken), fingerprint(killed)) == []
