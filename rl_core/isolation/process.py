"""Starting a process for user functions with its supervisor, talking to it, and ending it; used by the threads of a
pool."""

import contextlib
import json
import os
import pickle
import select
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from rl_core.wording import exit_words

_LONGEST_MESSAGE = 256 * 2**20
"""Most bytes of one answer. The answer to a batch of thousands of inputs is shorter."""

_SLICE_SECONDS = 0.1
"""So often a thread that waits looks whether it still should."""

_PIECE = 64 * 1024
"""Most bytes that are read at a time."""

_FATE_SECONDS = 2.0
"""A process that has closed its connection is about to exit: so long the run waits for its exit status."""

_END_SECONDS = 10.0
"""The supervisor's grace period and its time to kill fit into this. A supervisor that takes longer is killed."""

_ORPHAN_SECONDS = 5.0

_MARK = "SIGHTLINE_ISOLATED_PROCESS"
"""Environment variable of an isolated process and all that it starts."""

Heard = TypeVar("Heard")
Left = Callable[[], float]
"""Gives the seconds that are left to wait, and may raise an exception that ends the waiting."""


class Ended(Exception):
    """The process has ended; `IsolatedProcess.fate` says how."""


class OutOfTime(Exception):
    """The process did not do in time what the run waited for."""


class IsolatedProcess:
    """One process that calls user functions. Whatever these do to it, the run sees an `Ended`. Used by one
    thread."""

    def __init__(self, environment: Mapping[str, str], *, output: int) -> None:
        """Start it. `output` is the file descriptor to which it prints."""
        self.session: int | None = None  # of the processes below the supervisor, as soon as it is known
        self._mark = uuid.uuid4().hex
        self._lifeline, its_lifeline = socket.socketpair()
        self._connection, its_connection = socket.socketpair()
        self._connection.setblocking(False)
        descriptors = [its_lifeline.fileno(), its_connection.fileno()]
        with its_lifeline, its_connection:
            self._supervisor = subprocess.Popen(
                [sys.executable, "-P", "-u", "-m", "rl_core.isolation.supervisor", *map(str, descriptors)],
                pass_fds=descriptors,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**environment, _MARK: self._mark},
                start_new_session=True,  # Ctrl-C in a terminal reaches the run alone, which first finishes its step
            )
        self._received = bytearray()
        self._fate: str | None = None
        self._is_over = False

    @property
    def has_ended(self) -> bool:
        """Whether the process or its supervisor has ended, as far as is seen without waiting."""
        events = select.poll()
        events.register(self._lifeline, select.POLLIN)
        events.register(self._connection, 0)  # POLLHUP is reported always
        return bool(events.poll(0))

    def send(self, message: object, left: Left) -> None:
        """Raises Ended, OutOfTime."""
        self._supervisor.send_signal(signal.SIGCONT)  # the previous call may have stopped it
        unsent = memoryview(pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL))
        while unsent:
            self._wait(select.POLLOUT, left)
            try:
                unsent = unsent[self._connection.send(unsent) :]
            except OSError:
                raise Ended from None

    def hear(self, read: Callable[[list[Any]], Heard], left: Left) -> Heard:
        """What `read` makes of the words of the next message. Raises OutOfTime; and Ended, also where `read` raises an
        exception because the function wrote to the process's connection."""
        while (end := self._received.find(b"\n")) < 0 and len(self._received) < _LONGEST_MESSAGE:
            self._wait(select.POLLIN, left)
            self._received += self._receive()
        line = bytes(self._received[: end + 1])
        del self._received[: end + 1]
        try:
            return read(json.loads(line))
        except Exception:  # noqa: BLE001 - a user function may have written anything to the connection
            self._fate = "it sent something else than a report"
            raise Ended from None

    def _receive(self) -> bytes:
        try:
            part = self._connection.recv(_PIECE)
        except OSError:
            part = b""
        if not part:
            raise Ended
        return part

    def fate(self) -> str:
        """How the process ended by itself, in words, after it and all that it started have ended."""
        if self._fate is None:
            self._fate = self._exit_words()
        self.end()
        return self._fate

    def _exit_words(self) -> str:
        self._supervisor.send_signal(signal.SIGCONT)
        self._lifeline.settimeout(_FATE_SECONDS)
        try:
            status = self._lifeline.recv(16)
        except TimeoutError:
            return "its connection was closed"
        except OSError:
            status = b""
        return exit_words(int(status)) if status else f"{exit_words(self._supervisor.wait())} to its parent process"

    def end(self) -> None:
        """End the process and all that it started, if they have not ended yet."""
        if self._is_over:
            return
        self._is_over = True
        with contextlib.suppress(OSError):
            self._lifeline.shutdown(socket.SHUT_WR)
        self._supervisor.send_signal(signal.SIGCONT)
        try:
            self._supervisor.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._supervisor.kill()
        if self._supervisor.wait() != 0:
            _end_all_with(self._mark, self.session)
        self._lifeline.close()
        self._connection.close()

    def _wait(self, event: int, left: Left) -> None:
        events = select.poll()
        events.register(self._connection, event)
        while not events.poll(1000 * max(0.0, min(seconds := left(), _SLICE_SECONDS))):
            if seconds <= 0.0:  # an answer that came in time is taken even if this thread was held up
                raise OutOfTime


def _end_all_with(mark: str, session: int | None) -> None:
    """Kill what a killed supervisor has left: processes with its mark, or in the session of its isolated process."""
    import psutil  # rarely needed

    deadline = time.monotonic() + _ORPHAN_SECONDS
    while time.monotonic() < deadline:
        left = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, ProcessLookupError):
                if process.status() == psutil.STATUS_ZOMBIE:
                    continue
                if os.getsid(process.pid) == session or process.environ().get(_MARK) == mark:
                    process.kill()
                    left.append(process)
        if not left:
            return
        psutil.wait_procs(left, timeout=0.1)
