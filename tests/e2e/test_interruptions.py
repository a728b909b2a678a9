"""A run that is killed and stopped ends with the same results as one that was not."""

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from rl_core.run_directory import RunDirectory
from tests.e2e.chaos import KILLER
from tests.e2e.runs import (
    REPOSITORY,
    command,
    differences,
    environment,
    fingerprint,
    run_arguments,
    sightline,
    the_run,
)

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]


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


def start(home: Path, *, launcher: tuple[str, ...] = ("-m", "flows.cli")) -> subprocess.Popen[bytes]:
    """A run whose output goes to a file: a pipe would stay open for as long as a child that outlives the run."""
    with (home / "output.txt").open("wb") as output:
        return subprocess.Popen(
            command(*run_arguments(home), launcher=launcher),
            env=environment(home),
            cwd=REPOSITORY,
            start_new_session=True,
            stdout=output,
            stderr=subprocess.STDOUT,
        )


def test_a_run_that_is_stopped_and_killed_twice_leaves_what_an_unbroken_one_leaves(
    finished: RunDirectory, tmp_path: Path
) -> None:
    """Each interrupts what the one before it left; tests/e2e/chaos.py does one at a time."""
    runs_dir = tmp_path / "runs"

    stopped = start(tmp_path)
    wait_for_step(runs_dir, 1, stopped)
    stopped.terminate()
    assert stopped.wait(timeout=300) == 143, output_of(tmp_path)
    assert "sightline run" in output_of(tmp_path)
    assert list(the_run(runs_dir).checkpoints.glob("step-*"))

    killed_in_a_save = start(tmp_path, launcher=(KILLER, "before", "checkpoints/step-000004"))
    assert killed_in_a_save.wait(timeout=300) == -signal.SIGKILL, output_of(tmp_path)
    assert not list(the_run(runs_dir).checkpoints.glob("step-000004"))

    killed_in_a_step = start(tmp_path)
    wait_for_step(runs_dir, 5, killed_in_a_step)
    os.killpg(killed_in_a_step.pid, signal.SIGKILL)
    killed_in_a_step.wait()

    sightline(*run_arguments(tmp_path), home=tmp_path, timeout=600)
    assert differences(fingerprint(finished), fingerprint(the_run(runs_dir))) == []
