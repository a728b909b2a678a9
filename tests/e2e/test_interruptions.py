"""A run that is killed and stopped ends with the same results as one that was not."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rl_core.run_directory import RunDirectory
from tests.e2e.chaos import KILLER
from tests.e2e.processes import prefect_server
from tests.e2e.runs import REPOSITORY, command, differences, fingerprint, run_arguments, the_run

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts the run, or goes on with it. All starts share one Prefect server, which takes its time to start."""
    with prefect_server(tmp_path, tmp_path / "server.txt") as (_, variables):

        def started(*, launcher: tuple[str, ...] = ("-m", "flows.cli")) -> subprocess.Popen[bytes]:
            # Output goes to a file: a pipe would stay open for as long as a child that outlives the run.
            with (tmp_path / "output.txt").open("wb") as output:
                return subprocess.Popen(
                    command(*run_arguments(tmp_path), launcher=launcher),
                    env=variables,
                    cwd=REPOSITORY,
                    start_new_session=True,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                )

        yield started


def output_of(home: Path) -> str:
    return (home / "output.txt").read_text()


def wait_for_step(runs_dir: Path, step: int, process: subprocess.Popen[bytes]) -> None:
    """Until the run has recorded `step`."""
    while process.poll() is None:
        files = list(runs_dir.glob("*/metrics.jsonl"))
        if files and f'"step":{step}' in files[0].read_text():
            return
        time.sleep(0.05)
    raise AssertionError(f"the run ended before step {step}: {output_of(runs_dir.parent)}")


def test_a_run_that_is_stopped_and_killed_twice_leaves_what_an_unbroken_one_leaves(
    finished: RunDirectory, start: Start, tmp_path: Path
) -> None:
    """Each interrupts what the one before it left; tests/e2e/chaos.py does one at a time."""
    runs_dir = tmp_path / "runs"

    stopped = start()
    wait_for_step(runs_dir, 1, stopped)
    stopped.terminate()
    assert stopped.wait(timeout=300) == 143, output_of(tmp_path)
    assert "sightline run" in output_of(tmp_path)
    assert list(the_run(runs_dir).checkpoints.glob("step-*"))

    killed_in_a_save = start(launcher=(KILLER, "before", "checkpoints/step-000004"))
    assert killed_in_a_save.wait(timeout=300) == -signal.SIGKILL, output_of(tmp_path)
    assert not list(the_run(runs_dir).checkpoints.glob("step-000004"))

    killed_in_a_step = start()
    wait_for_step(runs_dir, 5, killed_in_a_step)
    os.killpg(killed_in_a_step.pid, signal.SIGKILL)
    killed_in_a_step.wait()

    assert start().wait(timeout=600) == 0, output_of(tmp_path)
    assert differences(fingerprint(finished), fingerprint(the_run(runs_dir))) == []
