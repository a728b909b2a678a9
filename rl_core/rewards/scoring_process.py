"""A scoring process and its keeper, as the server sees them: started, talked to, ended."""

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
"""Bytes of one answer. A batch of thousands of samples comes to less."""

_LAST_WORDS_SECONDS = 2.0
"""A process whose connection is closed is ending; for so long it may do that by itself."""

_LONGEST_STATUS = 16
"""Bytes of the keeper's last words: a number."""

_END_SECONDS = 10.0
"""The keeper needs its grace and the time to kill; one that was stopped is killed itself then."""

_ORPHAN_SECONDS = 5.0


Heard = TypeVar("Heard")


class Ended(Exception):
    """The process has ended; its `fate` tells how."""


class ScoringProcess:
    """Made by `start`. Whatever a stranger does to it ends in `Ended`."""

    _keepers: set[int] = set()

    def __init__(
        self,
        keeper: "subprocess.Popen[bytes]",
        *,
        lifeline: "_Stream",
        connection: "_Stream",
        output: "_Output",
    ) -> None:
        self._keeper = keeper
        self._lifeline = lifeline
        self._connection = connection
        self._output = output
        self._fate: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._end = asyncio.ensure_future(self._wait_for_end())
        self.loaded: list[int] = []
        """Lanes whose function is loaded here."""
        self.called: set[int] = set()
        """Lanes whose function was called here."""

    @classmethod
    async def start(cls, order: PoolOrder, lanes: Sequence[int], printer: Printer) -> "ScoringProcess":
        """Start a process that loads these lanes."""
        lifeline, its_lifeline = socket.socketpair()
        connection, its_connection = socket.socketpair()
        output, its_output = (os.fdopen(end, mode) for end, mode in zip(os.pipe(), ("rb", "wb"), strict=True))
        with its_lifeline, its_connection, its_output:
            descriptors = [its_lifeline.fileno(), its_connection.fileno()]
            keeper = subprocess.Popen(
                [sys.executable, "-P", "-u", "-m", "rl_core.rewards.keeper", *map(str, descriptors)],
                pass_fds=descriptors,
                stdin=subprocess.DEVNULL,
                stdout=its_output,
                stderr=its_output,
                start_new_session=True,
            )
            cls._keepers.add(keeper.pid)
        _, read = await asyncio.get_running_loop().connect_read_pipe(lambda: _Output(printer), output)
        process = cls(
            keeper,
            lifeline=_Stream(*await asyncio.open_unix_connection(sock=lifeline)),
            connection=_Stream(*await asyncio.open_unix_connection(sock=connection, limit=_LONGEST_MESSAGE)),
            output=read,
        )
        process._connection.writer.write(pickle.dumps((order, list(lanes))))
        return process

    def tell_end(self, waiting: "asyncio.Future[Any]") -> None:
        """Resolve this future to None when the process ends, unless it has a result by then."""

        def tell(_: object) -> None:
            if not waiting.done():
                waiting.set_result(None)

        self._end.add_done_callback(tell)

    async def ask(self, call: Call) -> None:
        """Send a call. Raises Ended."""
        self._keeper.send_signal(signal.SIGCONT)  # the call before may have stopped it
        try:
            self._connection.writer.write(pickle.dumps(call, protocol=pickle.HIGHEST_PROTOCOL))
            await self._connection.writer.drain()
        except OSError:
            raise Ended from None

    async def hear(self, read: Callable[[list[Any]], Heard]) -> Heard:
        """What the process says next, as `read` makes it of its words.

        Raises:
            Ended: it has ended, or should: `read` found that its words mean nothing (a ValueError or TypeError),
                because the reward wrote to a connection that is not its own.
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
        """Whether its end has come, by itself or not."""
        return self._fate.done()

    async def fate(self) -> str:
        """How it ended by itself, in words. It and all that it started have ended then."""
        self._keeper.send_signal(signal.SIGCONT)
        await asyncio.wait([self._fate], timeout=_LAST_WORDS_SECONDS)
        self._settle("its connection was closed")
        await self.end()
        return self._fate.result()

    async def end(self) -> None:
        """End it with all that it started, if it has not ended yet."""
        self._settle("it was ended")
        with contextlib.suppress(OSError, RuntimeError):  # it is closed already
            self._lifeline.writer.write_eof()
        self._keeper.send_signal(signal.SIGCONT)
        try:
            await asyncio.wait_for(asyncio.shield(self._end), _END_SECONDS)
        except TimeoutError:
            self._keeper.kill()
            await self._end

    async def _wait_for_end(self) -> None:
        """Learn how the scoring process ended, and wait until its keeper has."""
        status = b""
        with contextlib.suppress(OSError):
            status = await self._lifeline.reader.read(_LONGEST_STATUS)
            if status:
                self._settle(exit_words(int(status)))
                await self._lifeline.reader.read()
        code = await asyncio.to_thread(self._keeper.wait)
        self._keepers.discard(self._keeper.pid)
        if not status:
            self._settle(f"{exit_words(code)} to its parent process")
            await end_orphans()
        await self._output.wait_closed()
        self._lifeline.writer.close()
        self._connection.writer.close()

    def _settle(self, fate: str) -> None:
        """What is known first of its end is what is said of it."""
        if not self._fate.done():
            self._fate.set_result(fate)


async def end_orphans() -> None:
    """Kill the children of this process that are no keepers: a keeper that was killed left them to it."""
    import psutil  # most rewards kill nobody, and the server starts sooner

    deadline = time.monotonic() + _ORPHAN_SECONDS
    while orphans := [child for child in psutil.Process().children() if child.pid not in ScoringProcess._keepers]:
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
    """What a process and those it starts write to standard output and error."""

    _DRAIN_SECONDS = 1.0

    def __init__(self, printer: Printer) -> None:
        self._printer = printer
        self._closed = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The pipe is open."""
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Hand it on."""
        self._printer.take(data)

    def connection_lost(self, error: Exception | None) -> None:
        """Nobody holds the other end any more."""
        if not self._closed.done():
            self._closed.set_result(None)

    async def wait_closed(self) -> None:
        """Take what is left in the pipe, and close it."""
        await asyncio.wait([self._closed], timeout=self._DRAIN_SECONDS)
        self._transport.close()


def exit_words(code: int) -> str:
    """An exit status: that of a process which ended by itself, or the signal that ended it."""
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
