"""A run has one writer."""

import fcntl
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rl_core.run_lock import RunLock, RunLocked, RunLockLost, ensure_held

HOLD = """
import sys, time
from pathlib import Path
from rl_core.run_lock import RunLock
with RunLock(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def lock_file(tmp_path) -> Path:
    return tmp_path / "run" / "lock"


def hold_in_another_process(lock_file: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen([sys.executable, "-c", HOLD, lock_file], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "held\n"
    return process


def test_a_second_process_is_refused_with_the_owners_pid_and_gets_the_lock_when_the_owner_is_killed(lock_file):
    owner = hold_in_another_process(lock_file)
    with pytest.raises(RunLocked, match=f"pid {owner.pid}") as refused, RunLock(lock_file):
        pass
    assert refused.value.owner == str(owner.pid)
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    with RunLock(lock_file):
        assert int(lock_file.read_text()) != owner.pid


def test_looking_at_a_lock_refuses_nobody(lock_file, monkeypatch):
    """Nor does a program that is just being started with a copy of the open file."""
    lock_file.parent.mkdir()
    looked_at = os.open(lock_file, os.O_RDONLY | os.O_CREAT)
    fcntl.flock(looked_at, fcntl.LOCK_SH)
    monkeypatch.setattr("time.sleep", lambda _: os.close(looked_at))
    with RunLock(lock_file):
        assert lock_file.read_text() == f"{os.getpid()}\n"


def test_a_removed_lock_is_made_again_by_its_owner_and_keeps_others_out(lock_file):
    with RunLock(lock_file):
        ensure_held(lock_file)
        lock_file.unlink()
        ensure_held(lock_file)
        assert lock_file.read_text() == f"{os.getpid()}\n"
        with pytest.raises(RunLocked), RunLock(lock_file):
            pass
    with RunLock(lock_file):
        pass


def test_an_owner_whose_removed_lock_was_taken_is_refused_from_then_on(lock_file):
    with RunLock(lock_file):
        lock_file.unlink()
        other = hold_in_another_process(lock_file)
        for _ in range(2):
            with pytest.raises(RunLockLost, match=r"lock was removed while this process held it.*writes nothing more"):
                ensure_held(lock_file)
        other.kill()
        other.wait()
        with pytest.raises(RunLockLost):  # what it has written is there
            ensure_held(lock_file)


def test_an_owner_whose_folder_was_removed_is_refused(lock_file):
    with RunLock(lock_file):
        shutil.rmtree(lock_file.parent)
        with pytest.raises(RunLockLost, match="run was removed while this process wrote it"):
            ensure_held(lock_file)
        assert not lock_file.parent.exists()


@pytest.mark.parametrize("after", [1, 2, 3])
def test_a_lock_that_is_removed_while_it_is_taken_is_taken_again(lock_file, after, monkeypatch):
    """Between opening the file and locking it."""
    original, left = fcntl.flock, after

    def removing(*arguments):
        nonlocal left
        left -= 1
        if left >= 0:
            lock_file.unlink()
        original(*arguments)

    monkeypatch.setattr(fcntl, "flock", removing)
    with RunLock(lock_file):
        assert lock_file.read_text() == f"{os.getpid()}\n"
        ensure_held(lock_file)
