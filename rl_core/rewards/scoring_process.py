"""Starting a scoring process with its supervisor, talking to it, and ending it; used by the server."""

import asyncio
import contextlib
import json
import os
import pickle
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

from rl_core.rewards.messages import Call, PoolOrder
from rl_core.rewards.printed import Printer

_LONGEST_MESSAGE = 256 * 2**20
"""Most bytes of one answer. The answer to a batch of thousands of samples is shorter."""

_FATE_SECONDS = 2.0
"""A process that has closed its connection is about to exit: so long the server waits for its exit status."""

_LONGEST_STATUS = 16
"""Most bytes of the exit status that the supervisor sends, a number in text."""

_END_SECONDS = 10.0
"""The supervisor's grace period and its time to kill fit into this. A supervisor that takes longer is killed."""

_ORPHAN_SECONDS = 5.0


Heard = TypeVar("Heard")


class Ended(Exception):
    """The process has ended; `ScoringProcess.fate` tells how."""


class ScoringProcess:
    """One scoring process, made by `start`. Whatever a user's code does to it, the server sees an `Ended`."""

    _supervisors: set[int] = set()

    def __init__(
        self,
        supervisor: "subprocess.Popen[bytes]",
        *,
        lifeline: "_Stream",
        connection: "_Stream",
        output: "_Output",
    ) -> None:
        self._supervisor = supervisor
        self._lifeline = lifeline
        self._connection = connection
        self._output = output
        self._fate: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._end = asyncio.ensure_future(self._wait_for_end())
        self.loaded: list[int] = []
        """Indices of the functions that are loaded here."""
        self.called: set[int] = set()
        """Indices of the functions that were called here."""

    @classmethod
    async def start(cls, order: PoolOrder, function_indices: Sequence[int], printer: Printer) -> "ScoringProcess":
        """Start a process that loads the functions with these indices."""
        lifeline, its_lifeline = socket.socketpair()
        connection, its_connection = socket.socketpair()
        output, its_output = (os.fdopen(end, mode) for end, mode in zip(os.pipe(), ("rb", "wb"), strict=True))
        with its_lifeline, its_connection, its_output:
            descriptors = [its_lifeline.fileno(), its_connection.fileno()]
            supervisor = subprocess.Popen(
                [sys.executable, "-P", "-u", "-m", "rl_core.rewards.supervisor", *map(str, descriptors)],
                pass_fds=descriptors,
                stdin=subprocess.DEVNULL,
                stdout=its_output,
                stderr=its_output,
                start_new_session=True,
            )
            cls._supervisors.add(supervisor.pid)
        _, read = await asyncio.get_running_loop().connect_read_pipe(lambda: _Output(printer), output)
        process = cls(
            supervisor,
            lifeline=_Stream(*await asyncio.open_unix_connection(sock=lifeline)),
            connection=_Stream(*await asyncio.open_unix_connection(sock=connection, limit=_LONGEST_MESSAGE)),
            output=read,
        )
        process._connection.writer.write(pickle.dumps((order, list(function_indices))))
        return process

    def tell_end(self, waiting: "asyncio.Future[Any]") -> None:
        """Set the result of this future to None when the process ends, unless it has a result by then."""

        def tell(_: object) -> None:
            if not waiting.done():
                waiting.set_result(None)

        self._end.add_done_callback(tell)

    async def ask(self, call: Call) -> None:
        """Send a call. Raises Ended."""
        self._supervisor.send_signal(signal.SIGCONT)  # the previous call may have stopped it
        try:
            self._connection.writer.write(pickle.dumps(call, protocol=pickle.HIGHEST_PROTOCOL))
            await self._connection.writer.drain()
        except OSError:
            raise Ended from None

    async def hear(self, read: Callable[[list[Any]], Heard]) -> Heard:
        """Wait for the next message of the process. Returns what `read` makes of its words.

        Raises:
            Ended: the process has ended, or must be ended because `read` raised ValueError or TypeError: the reward
                function wrote to the process's connection.
        """
        try:
            line = await self._connection.reader.readline()
            if line:
                return read(json.loads(line))
        except OSError:
            pass
        except (ValueError, TypeError):
            self._settle("it sent something else than a report")
        raise Ended

    @property
    def has_died(self) -> bool:
        """Whether the process has ended, or is being ended."""
        return self._fate.done()

    async def fate(self) -> str:
        """How the process ended by itself, in words. Waits until it and all that it started have ended."""
        self._supervisor.send_signal(signal.SIGCONT)
        await asyncio.wait([self._fate], timeout=_FATE_SECONDS)
        self._settle("its connection was closed")
        await self.end()
        return self._fate.result()

    async def end(self) -> None:
        """End the process and all that it started, if they have not ended yet."""
        self._settle("it was ended")
        with contextlib.suppress(OSError, RuntimeError):  # the lifeline is closed already
            self._lifeline.writer.write_eof()
        self._supervisor.send_signal(signal.SIGCONT)
        try:
            await asyncio.wait_for(asyncio.shield(self._end), _END_SECONDS)
        except TimeoutError:
            self._supervisor.kill()
            await self._end

    async def _wait_for_end(self) -> None:
        """Learn how the scoring process ended, and wait until its supervisor has exited."""
        status = b""
        with contextlib.suppress(OSError):
            status = await self._lifeline.reader.read(_LONGEST_STATUS)
            if status:
                self._settle(exit_words(int(status)))
                await self._lifeline.reader.read()
        code = await asyncio.to_thread(self._supervisor.wait)
        self._supervisors.discard(self._supervisor.pid)
        if not status:
            self._settle(f"{exit_words(code)} to its parent process")
            await end_orphans()
        await self._output.wait_closed()
        self._lifeline.writer.close()
        self._connection.writer.close()

    def _settle(self, fate: str) -> None:
        """The first account of how the process ended is kept."""
        if not self._fate.done():
            self._fate.set_result(fate)


async def end_orphans() -> None:
    """Kill the children of this process that are not supervisors: a supervisor that was killed has left them."""
    import psutil  # rarely needed, and without it the server starts sooner

    deadline = time.monotonic() + _ORPHAN_SECONDS
    while orphans := [child for child in psutil.Process().children() if child.pid not in ScoringProcess._supervisors]:
        for orphan in orphans:
            with contextlib.suppress(psutil.NoSuchProcess):
                orphan.kill()
            with contextlib.suppress(ChildProcessError):
                os.waitpid(orphan.pid, os.WNOHANG)
        if time.monotonic() > deadline:
            return
        await asyncio.sleep(0.01)


class _Stream(NamedTuple):
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter


class _Output(asyncio.Protocol):
    """Reads what a process, and the processes that it starts, write to standard output and error."""

    _DRAIN_SECONDS = 1.0

    def __init__(self, printer: Printer) -> None:
        self._printer = printer
        self._closed = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The pipe is open."""
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Pass the output on."""
        self._printer.take(data)

    def connection_lost(self, error: Exception | None) -> None:
        """No process holds the other end any more."""
        if not self._closed.done():
            self._closed.set_result(None)

    async def wait_closed(self) -> None:
        """Read what is left in the pipe, and close it."""
        await asyncio.wait([self._closed], timeout=self._DRAIN_SECONDS)
        self._transport.close()


def exit_words(code: int) -> str:
    """The exit code of a process, or the signal that ended it, in words."""
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
