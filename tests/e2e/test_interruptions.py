"""A run that is killed and stopped ends with the same results as one that was not."""

import os
import signal
from pathlib import Path

import psutil
import pytest

from rl_core.run_directory import RunDirectory
from tests.e2e.chaos import KILLER
from tests.e2e.processes import flow_run_states, has_recorded, openings, prefect_server, run_of
from tests.e2e.runs import command, environment, fingerprint, run_arguments
from tests.results import differences
from tests.servers import started, wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]


@pytest.mark.slow
def test_a_run_that_is_killed_and_stopped_twice_each_leaves_what_an_unbroken_one_leaves(
    finished: RunDirectory, new_home: Path
) -> None:
    """Each interrupts what the one before it left; tests/e2e/chaos.py does many."""
    arguments, run = run_of(new_home)
    output = new_home / "output.txt"

    with started(arguments, environment(new_home), output) as killed:
        wait_until(lambda: has_recorded(run, 1) or killed.poll() is not None, "a step is recorded")
        children = psutil.Process(killed.pid).children(recursive=True)
        assert any("prefect.server.api.server:create_app" in child.cmdline() for child in children)
        killed.kill()
        _, alive = psutil.wait_procs(children, timeout=60)
        assert not alive

    with prefect_server(new_home, new_home / "server.txt") as (_, variables):
        with started(arguments, variables, output) as stopped:
            wait_until(lambda: openings(run) == 2 or stopped.poll() is not None, "the run goes on")
            os.killpg(stopped.pid, signal.SIGINT)
            assert stopped.wait(timeout=300) == 130, output.read_text()
        assert f"sightline run --resume {run.name}" in output.read_text()

        for moment in ("step-000006", ".step-000006.tmp/counters.json"):  # at its end, and while it is written
            launcher = (KILLER, "before", f"checkpoints/{moment}")
            with started(command(*run_arguments(new_home), launcher=launcher), variables, output) as killed_in_a_save:
                assert killed_in_a_save.wait(timeout=300) == -signal.SIGKILL, output.read_text()
            assert list(run.checkpoints.glob("step-*")) and not list(run.checkpoints.glob("step-000006"))

        with started(arguments, variables, output) as stopped:
            wait_until(lambda: openings(run) == 5 or stopped.poll() is not None, "the run goes on")
            stopped.terminate()
            assert stopped.wait(timeout=300) == 143, output.read_text()

        with started(arguments, variables, output) as unbroken:
            assert unbroken.wait(timeout=600) == 0, output.read_text()
        assert "training continues after step" in output.read_text()

    states = flow_run_states(new_home, run)
    assert states[-6:] == ["Crashed", "Interrupted", "Crashed", "Crashed", "Interrupted", "Completed"]
    assert '"kind":"reward_failed"' not in run.events.read_text()
    assert differences(fingerprint(finished), fingerprint(run)) == []


@pytest.mark.slow
def test_a_preparation_that_is_asked_to_stop_does_so_at_once_and_says_so(new_home: Path) -> None:
    arguments, run = run_of(new_home, "data.train.size=200000", "cold_start=null")
    output = new_home / "output.txt"

    def is_preparing() -> bool:
        return any(run.root.glob(f".{run.data.name}.tmp-*/train.parquet"))

    with started(arguments, environment(new_home), output) as stopped:
        wait_until(lambda: is_preparing() or stopped.poll() is not None, "rows are prepared")
        os.killpg(stopped.pid, signal.SIGTERM)
        assert stopped.wait(timeout=120) == 143, output.read_text()  # the rows would take longer
    assert "SIGTERM: unfinished preparation is dropped" in output.read_text()
    assert "stopped by SIGTERM; what was finished is kept" in output.read_text()
    assert f"sightline run --resume {run.name}" in output.read_text()
    assert not is_preparing()
    assert flow_run_states(new_home, run) == ["Interrupted"]
