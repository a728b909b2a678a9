"""The parent process of an isolated process, which ends whatever a user function leaves behind.

The run starts `python -m rl_core.isolation.supervisor LIFELINE CONNECTION` (two file descriptors). It forks before any
user code is loaded: the child becomes the isolated process, in a session of its own; the parent, the supervisor, waits.
A function that kills its parent or its process group hits only these two, and orphans of what it started become
children of the supervisor. When the isolated process has ended, the supervisor reports its exit status on the lifeline,
a socket, and ends what is left; if the run closes the other end, or ends itself, it ends all processes below it."""

import contextlib
import os
import select
import signal
import socket
import sys
import time

from rl_core.parent import adopt_orphans, killed_with

GRACE_SECONDS = 0.5
"""Processes that a function leaves behind get SIGTERM for so long, so that they can free their shared memory;
then SIGKILL."""

_KILL_SECONDS = 5.0
"""Processes that appear when another one is killed are killed too, for so long."""

_IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)


def supervise(lifeline: socket.socket, connection: socket.socket) -> None:
    """Fork. Returns in the child, which becomes the isolated process; never returns in the parent."""
    adopt_orphans()
    woken, wake = os.pipe()
    os.set_blocking(woken, False)
    os.set_blocking(wake, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake)
    supervisor = os.getpid()
    child = os.fork()
    if child == 0:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        # A shell starts background jobs with SIGINT ignored, and all processes below would inherit that.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.close(woken)
        os.close(wake)
        lifeline.close()
        os.setsid()
        killed_with(supervisor)
        return
    for number in _IGNORED:
        signal.signal(number, signal.SIG_IGN)
    connection.close()  # so that the run sees its end as soon as the isolated process has ended
    try:
        status = _watch(child, lifeline, woken)
        with contextlib.suppress(OSError):
            lifeline.sendall(str(os.waitstatus_to_exitcode(status)).encode())
        _end_descendants()
    finally:
        os._exit(0)


def _watch(child: int, lifeline: socket.socket, woken: int) -> int:
    """Wait until the isolated process has ended, and kill it if the lifeline is closed. Returns its wait status."""
    events = select.poll()  # `select` refuses the high numbers that a run with many open files gives
    events.register(lifeline, select.POLLIN)
    events.register(woken, select.POLLIN)
    while True:
        readable = [descriptor for descriptor, _ in events.poll()]
        if woken in readable:
            with contextlib.suppress(BlockingIOError):
                os.read(woken, 4096)
            if (status := _reap(child)) is not None:
                return status
        if lifeline.fileno() in readable:
            os.kill(child, signal.SIGKILL)
            _, status = os.waitpid(child, 0)
            return status


def _reap(child: int) -> int | None:
    """Reap every child that has ended, adopted ones included. Returns the wait status of `child` if it was one."""
    status = None
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, ended = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                break
            if pid == child:
                status = ended
    return status


def _end_descendants() -> None:
    """Send SIGTERM, then SIGKILL. Python's resource tracker ignores SIGTERM, and frees shared memory before it
    exits."""
    began = time.monotonic()
    while _has_children():
        waited = time.monotonic() - began
        if waited > GRACE_SECONDS + _KILL_SECONDS:
            return
        _signal_descendants(signal.SIGTERM if waited < GRACE_SECONDS else signal.SIGKILL)
        time.sleep(0.01)


def _has_children() -> bool:
    try:
        while os.waitpid(-1, os.WNOHANG)[0] != 0:
            pass
    except ChildProcessError:
        return False
    return True


def _signal_descendants(number: signal.Signals) -> None:
    import psutil  # most functions leave no process behind, and without it the supervisor stays small

    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            process.send_signal(number)


def main() -> None:
    """Fork, and call functions in the child."""
    lifeline, connection = (socket.socket(fileno=int(argument)) for argument in sys.argv[1:3])
    supervise(lifeline, connection)
    del sys.argv[1:]  # a user's file that reads the command line when it is imported finds it empty
    from rl_core.isolation.worker import serve

    serve(connection)


if __name__ == "__main__":
    main()
elif __name__ == "__mp_main__":  # `multiprocessing` in a user function imports the main module in its child first
    from rl_core.user_code.modules import find_user_files

    find_user_files()
