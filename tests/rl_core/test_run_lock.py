"""A run has one writer."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rl_core.run_lock import RunLock, RunLocked

HOLD = """
import sys, time
from pathlib import Path
from rl_core.run_lock import RunLock
with RunLock(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def lock_file(tmp_path: Path) -> Path:
    return tmp_path / "run" / "lock"


def hold_in_another_process(lock_file: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen([sys.executable, "-c", HOLD, lock_file], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "held\n"
    return process


def test_a_second_starter_is_told_the_pid_of_the_owner_and_gets_the_lock_when_the_owner_is_killed(
    lock_file: Path,
) -> None:
    owner = hold_in_another_process(lock_file)
    with (
        pytest.raises(RunLocked, match=f"pid {owner.pid}") as refused,
        RunLock(lock_file),
    ):
        pass
    assert refused.value.owner == str(owner.pid)
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    with RunLock(lock_file):
        assert int(lock_file.read_text()) != owner.pid


def test_a_program_started_by_the_owner_does_not_keep_the_lock(lock_file: Path) -> None:
    with RunLock(lock_file):
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        with RunLock(lock_file):
            assert child.poll() is None
    finally:
        child.kill()
        child.wait()


def test_the_lock_is_refused_within_one_process_too_and_free_after_the_block(
    lock_file: Path,
) -> None:
    with RunLock(lock_file), pytest.raises(RunLocked), RunLock(lock_file):
        pass
    with RunLock(lock_file):
        pass
