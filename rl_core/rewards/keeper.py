"""The guard of a scoring process: the first thing that its interpreter runs, and then its parent.

`python -m rl_core.rewards.keeper LIFELINE CONNECTION` (two file descriptors) is started by the reward server. It forks
before anything of a stranger is loaded: the child is the scoring process, in a session of its own; the parent, the
keeper, waits. A reward that kills its parent or its process group so reaches this pair and nothing else, and whatever
it started is the keeper's to end: orphans become its children.

The keeper holds one end of the lifeline. Where the server closes the other end, or ends, everything below the keeper
is ended. When the scoring process has ended, the keeper says on the lifeline how, ends what is left, and ends too.
"""

import contextlib
import ctypes
import os
import select
import signal
import socket
import sys
import time

GRACE_SECONDS = 0.5
"""Processes that a reward leaves are asked to end first, so that they can remove what they have in shared memory."""

_KILL_SECONDS = 5.0
"""Processes that a killed one leaves are killed as well, for so long; who is still there then is the server's."""

_PR_SET_PDEATHSIG = 1  # <linux/prctl.h>
_PR_SET_CHILD_SUBREAPER = 36

_IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)


def adopt_orphans() -> None:
    """Become the parent of descendants whose own parent ends (Linux; elsewhere they go to the system)."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def guard(lifeline: socket.socket, connection: socket.socket) -> None:
    """Fork. Returns in the child, which is to be the scoring process; the parent never returns."""
    adopt_orphans()
    woken, wake = os.pipe()
    os.set_blocking(woken, False)
    os.set_blocking(wake, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake)
    keeper = os.getpid()
    child = os.fork()
    if child == 0:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        # A run that a shell has started in the background ignores it, and so would everything below.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.close(woken)
        os.close(wake)
        lifeline.close()
        os.setsid()
        _die_with(keeper)
        return
    for number in _IGNORED:
        signal.signal(number, signal.SIG_IGN)
    connection.close()  # its end is seen when the scoring process ends, not with this one
    try:
        status = _watch(child, lifeline, woken)
        with contextlib.suppress(OSError):
            lifeline.sendall(str(os.waitstatus_to_exitcode(status)).encode())
        _end_descendants()
    finally:
        os._exit(0)


def _watch(child: int, lifeline: socket.socket, woken: int) -> int:
    """The exit status of the scoring process, once it has ended; it is killed when the lifeline is closed."""
    while True:
        readable, _, _ = select.select([lifeline.fileno(), woken], [], [])
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
    """Take leave of every child that has ended, adopted ones too. The exit status of `child` if it is among them."""
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
    """Ask all that is left below this process to end, then kill it. Python's resource tracker hears no SIGTERM: it ends
    by itself when those who use it have ended, and removes their shared memory before."""
    began = time.monotonic()
    while _has_children():
        waited = time.monotonic() - began
        if waited > GRACE_SECONDS + _KILL_SECONDS:
            return
        _signal_descendants(signal.SIGTERM if waited < GRACE_SECONDS else signal.SIGKILL)
        time.sleep(0.01)


def _has_children() -> bool:
    """Whether any is left; those that have ended are reaped."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0] != 0:
            pass
    except ChildProcessError:
        return False
    return True


def _signal_descendants(number: signal.Signals) -> None:
    import psutil  # most rewards leave nothing, and the keeper stays small

    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            process.send_signal(number)


def _die_with(keeper: int) -> None:
    """A process that hangs in a call does not see that its keeper was killed; the kernel does."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != keeper:  # it died before it was asked for a signal, which never comes now
        os._exit(1)


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux" and ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option})")


def main() -> None:
    """Fork, and score in the child."""
    lifeline, connection = (socket.socket(fileno=int(argument)) for argument in sys.argv[1:3])
    guard(lifeline, connection)
    del sys.argv[1:]  # a file that reads a command line when it is imported finds an empty one
    from rl_core.rewards.worker import serve

    serve(connection)


if __name__ == "__main__":
    main()
elif __name__ == "__mp_main__":  # a process that a reward starts by `multiprocessing` imports the main module first
    from rl_core.user_code.modules import find_user_files

    find_user_files()
