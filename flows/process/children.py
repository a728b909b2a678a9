"""Ends a child process when the process that started it is gone."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def ended_with_this_process(pid: int) -> Iterator[None]:
    """Start a process that sends SIGTERM to `pid` when this process is gone, however it ended: it waits for the end of
    a pipe that only this process can write to."""
    command = ["/bin/sh", "-c", 'read _; kill "$0"', str(pid)]
    watcher = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        yield
    finally:
        watcher.kill()
        watcher.communicate()
