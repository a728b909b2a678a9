"""Ends a process when the one that started it is gone, in whatever way that ended."""

import ctypes
import os
import select
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_PR_SET_PDEATHSIG = 1  # <linux/prctl.h>
_PR_SET_CHILD_SUBREAPER = 36

_LOOK_SECONDS = 1.0


def end_with_parent(end: Callable[[], object]) -> None:
    """Call `end`, in a thread, as soon as the parent of this process is gone."""
    parent = end_of_parent()

    def watch() -> None:
        select.select([parent], [], [])
        end()

    threading.Thread(target=watch, name="end-with-parent", daemon=True).start()


def killed_with(parent: int) -> None:
    """Have the kernel kill this process, which the main thread of `parent` has forked, when that one ends."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before the kernel was asked
        os._exit(1)


def adopt_orphans() -> None:
    """Become the parent of descendants whose own parent ends."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def _prctl(option: int, value: int) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option})")


def end_of_parent() -> int:
    """A file descriptor that `select` finds readable as soon as the parent of this process is gone."""
    parent = os.getppid()
    try:
        return os.pidfd_open(parent)
    except (AttributeError, OSError):  # a Python or a kernel without it
        found, ours = os.pipe()

        def look() -> None:
            while os.getppid() == parent:
                time.sleep(_LOOK_SECONDS)
            os.close(ours)

        threading.Thread(target=look, name="look-at-parent", daemon=True).start()
        return found


@contextmanager
def ended_with_this_process(pid: int) -> Iterator[None]:
    """When this process is gone, another one, which waits for the end of a pipe, sends SIGTERM to `pid`."""
    command = ["/bin/sh", "-c", 'read _; kill "$0"', str(pid)]
    watcher = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        yield
    finally:
        watcher.kill()
        watcher.communicate()
