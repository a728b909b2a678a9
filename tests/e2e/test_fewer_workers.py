"""A run whose cluster has too few machines goes on with those that are there, and with all when the others come."""

import os
import signal
from pathlib import Path

import pytest

from rl_core.records.metrics_log import read
from rl_core.run_directory import RunDirectory
from tasks.cache.manifests import read_manifest
from tests.e2e.processes import has_recorded, run_of
from tests.e2e.runs import environment
from tests.machines import Machines
from tests.servers import started, wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(1500)]


def told(run: RunDirectory) -> list[int]:
    """The numbers of workers with which the run went on."""
    return [event["workers"] for event in read(run.events) if event["kind"] == "workers-changed"]


def test_a_run_goes_on_with_what_is_there_and_tells_so(tmp_path: Path) -> None:
    """It begins with one of two workers, is stopped by Ctrl-C, and goes on with two; the cluster stays as it is."""
    with Machines() as machines:
        section = f"nodes: 2, device: cpu, address: '{machines.address}', min_workers: 1, wait_for_all_seconds: 10"
        trainer = "trainer={total_epochs: 4, save_freq: 1, val_freq: -1}"
        arguments, run = run_of(tmp_path, f"cluster={{{section}}}", "cold_start.steps=10", trainer)
        variables = environment(tmp_path) | machines.environment | {"OMP_NUM_THREADS": "1"}
        output = tmp_path / "output.txt"

        with started(arguments, variables, output) as stopped:
            wait_until(lambda: has_recorded(run, 2) or stopped.poll() is not None, "a step is recorded", seconds=500)
            os.killpg(stopped.pid, signal.SIGINT)
            assert stopped.wait(timeout=300) == 130, output.read_text()
        assert told(run) == [1]
        wait_until(lambda: machines.head.workers == [], "the worker ends", seconds=30.0)

        machines.add()
        with started(arguments, variables, output) as resumed:
            assert resumed.wait(timeout=700) == 0, output.read_text()
        assert told(run) == [1]
        assert "workers" in output.read_text()
        assert machines.is_there
        wait_until(lambda: not any(m.workers for m in machines.all), "the workers end", seconds=30.0)

    assert [line["step"] for line in read(run.metrics)] == [*range(1, 13)]
    cold, last = read_manifest(run, "cold-start"), read_manifest(run, "train-epoch-004")
    assert cold is not None and last is not None
    assert "workers" not in cold.software
    assert last.software["workers"].startswith("none; 2 x 1, sharding full after step ")
