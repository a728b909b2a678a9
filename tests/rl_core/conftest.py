"""What the tests of several rooms share: dying at a chosen moment, and a disk that is soon full."""

import os
import signal
import subprocess
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

FILE_CALLS = (
    "replace",
    "rename",
    "fsync",
    "mkdir",
    "unlink",
    "rmdir",
    "ftruncate",
    "truncate",
)


def _die_before_call(number: int) -> None:
    """From now on, kill this process with SIGKILL before it makes the file-changing call of that number (from 1)."""
    left = number

    def dying(call: Callable[..., object]) -> Callable[..., object]:
        def wrapped(*args: object, **kwargs: object) -> object:
            nonlocal left
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*args, **kwargs)

        return wrapped

    for name in FILE_CALLS:
        setattr(os, name, dying(getattr(os, name)))


def _run_in_child(action: Callable[[], None], kill_before: int) -> int:
    """Fork, run `action`, return the raw wait status. A forked copy starts in a millisecond, a new Python does not."""
    child = os.fork()
    if child == 0:
        try:
            _die_before_call(kill_before)
            action()
            os._exit(0)
        finally:  # the child must never run on as a second pytest
            traceback.print_exc()
            os._exit(1)
    return os.waitpid(child, 0)[1]


@pytest.fixture
def killed_before_each_call() -> Callable[..., int]:
    """`(prepare, action, check)`: for n = 1, 2, ... prepare afresh, run `action` in a process that SIGKILL ends before
    its n-th file-changing call, then `check()`; until `action` gets through. `every` passes over most n. Returns how
    many kills there were."""

    def run(
        prepare: Callable[[], None],
        action: Callable[[], None],
        check: Callable[[], None],
        *,
        every: int = 1,
    ) -> int:
        for kills, number in enumerate(range(1, 500, every)):
            prepare()
            status = _run_in_child(action, number)
            check()
            if os.WIFEXITED(status):
                assert os.WEXITSTATUS(status) == 0, "the action failed by itself; its traceback is above"
                return kills
            assert os.WTERMSIG(status) == signal.SIGKILL
        raise AssertionError("the action never got through")

    return run


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A real file system of 1 MiB; needs root, as the test container has."""
    mount = tmp_path / "disk"
    mount.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", mount], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"cannot mount a small tmpfs: {mounted.stderr.decode().strip()}")
    yield mount
    subprocess.run(["umount", "--lazy", mount], check=True)  # a failed test may have left a file open
