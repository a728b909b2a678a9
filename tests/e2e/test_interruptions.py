"""Runs that are killed or stopped end with the same results as one that was not."""

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


def start(home: Path) -> subprocess.Popen[bytes]:
    """A run whose output goes to a file: a pipe would stay open for as long as a child that outlives the run."""
    with (home / "output.txt").open("wb") as output:
        return subprocess.Popen(
            command(*run_arguments(home)),
            env=environment(home),
            cwd=REPOSITORY,
            start_new_session=True,
            stdout=output,
            stderr=subprocess.STDOUT,
        )


def resumed_differences(home: Path, expected: RunDirectory) -> list[str]:
    sightline(*run_arguments(home), home=home, timeout=600)
    return differences(fingerprint(expected), fingerprint(the_run(home / "runs")))


def test_sigkill_in_the_middle_of_training(finished: RunDirectory, tmp_path: Path) -> None:
    process = start(tmp_path)
    wait_for_step(tmp_path / "runs", 5, process)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert resumed_differences(tmp_path, finished) == []


def test_sigkill_inside_the_replacement_of_a_checkpoint(finished: RunDirectory, tmp_path: Path) -> None:
    watcher = (KILLER, "before", "checkpoints/step-000004")
    done = subprocess.run(
        command(*run_arguments(tmp_path), launcher=watcher),
        env=environment(tmp_path),
        cwd=REPOSITORY,
        check=False,
        stdout=subprocess.DEVNULL,  # a pipe would stay open for as long as a child that outlives the kill
        stderr=subprocess.DEVNULL,
    )
    assert done.returncode == -signal.SIGKILL
    assert resumed_differences(tmp_path, finished) == []


def test_sigterm_writes_a_checkpoint_says_how_to_continue_and_exits_143(finished: RunDirectory, tmp_path: Path) -> None:
    process = start(tmp_path)
    wait_for_step(tmp_path / "runs", 1, process)
    process.terminate()
    process.wait(timeout=300)
    output = output_of(tmp_path)
    assert process.returncode == 143, output
    assert "sightline run" in output
    assert list(the_run(tmp_path / "runs").checkpoints.glob("step-*"))
    assert resumed_differences(tmp_path, finished) == []
