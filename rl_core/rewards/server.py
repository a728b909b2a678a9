"""The reward server: a small process between the run and the scoring processes.

RewardPool starts `python -m rl_core.rewards.server FD`. The server exists for three reasons. First, the run's process
is a command line, a test runner or a user's script that may have loaded torch and vLLM; scoring processes must start
from a small process instead. Second, watching processes and time limits then costs the generating process nothing.
Third, when the run is killed in whatever way, its end of the connection closes, and the server ends all scoring
processes, including those whose reward function hangs.

One thread, an event loop, makes all decisions: each slot for a scoring process is a coroutine, which starts a new
process when one has ended. Two more threads receive messages from the run and send messages to it.
"""

import asyncio
import os
import queue
import sys
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

from rl_core.rewards.call_limits import CallLimit, CallLimits
from rl_core.rewards.components import components_of
from rl_core.rewards.loading_record import LoadingRecord
from rl_core.rewards.messages import BatchRetry, Call, CallResult, Chunk, PoolOrder, Report
from rl_core.rewards.printed import Printer
from rl_core.rewards.scoring_process import Ended, ScoringProcess
from rl_core.rewards.supervisor import adopt_orphans

MAX_BREAKS = 3
"""A sample gets no score if so many processes have ended after it was assigned to them and before its call began. One
such end may be an accident: something outside killed the process."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Task:
    """A part of a chunk that one process scores at a time."""

    chunk: Chunk
    start: int
    stop: int
    breaks: int = 0

    @property
    def function_index(self) -> int:
        return self.chunk.function_index

    @property
    def count(self) -> int:
        return self.stop - self.start

    def parts(self, size: int, *, done: int = 0) -> list["_Task"]:
        """The samples after the first `done` ones, in tasks of at most `size`."""
        starts = range(self.start + done, self.stop, size)
        return [replace(self, start=start, stop=min(start + size, self.stop)) for start in starts]


class RewardServer:
    """Turns chunks into reports until the connection is closed."""

    def __init__(self, connection: "Connection[Report | BatchRetry, Chunk | None]", order: PoolOrder) -> None:
        self._connection = connection
        self._order = order
        self._limits = CallLimits(order)
        self._loading = LoadingRecord(order)
        self._waiting: deque[_Task] = deque()
        self._turns: deque[asyncio.Future[_Task | None]] = deque()
        self._reports: queue.SimpleQueue[Report | BatchRetry | None] = queue.SimpleQueue()
        self._printer = Printer(sys.stderr.fileno())

    async def serve(self) -> None:
        """Run until the other end of the connection is closed, then end all scoring processes."""
        self._loop = asyncio.get_running_loop()
        self._closed = self._loop.create_future()
        for work in (self._receive, self._send):
            threading.Thread(target=work, name=f"reward{work.__name__}", daemon=True).start()
        slots = [asyncio.ensure_future(self._slot()) for _ in range(self._order.workers)]
        try:
            await asyncio.wait([self._closed, *slots], return_when=asyncio.FIRST_COMPLETED)
            for slot in slots:
                if slot.done():
                    slot.result()  # raises: a slot only ends by an error of this program
        finally:
            for slot in slots:
                slot.cancel()
            await asyncio.gather(*slots, return_exceptions=True)
            self._printer.close()

    def _receive(self) -> None:
        """A thread: hands what the run sends to the event loop."""
        try:
            while (chunk := self._connection.recv()) is not None:
                self._loop.call_soon_threadsafe(self._schedule, _Task(chunk=chunk, start=0, stop=chunk.count))
        except (EOFError, ConnectionResetError):
            pass
        self._loop.call_soon_threadsafe(self._close)

    def _send(self) -> None:
        """A thread: a run that is slow to read does not delay the time limits."""
        try:
            while (report := self._reports.get()) is not None:
                self._connection.send(report)
        except (BrokenPipeError, ConnectionResetError):  # the run no longer reads
            self._loop.call_soon_threadsafe(self._close)

    def _close(self) -> None:
        if not self._closed.done():
            self._closed.set_result(None)

    def _schedule(self, task: _Task, *, first: bool = False) -> None:
        """Let a task wait for a process, or report at once that its function cannot be loaded."""
        if (reason := self._loading.problem(task.function_index)) is not None:
            self._report(task, [CallResult({}, None, reason)] * task.count, 0.0)
            return
        (self._waiting.appendleft if first else self._waiting.append)(task)
        self._dispatch()

    def _dispatch(self) -> None:
        """Give waiting tasks to waiting processes."""
        while self._waiting and self._turns:
            turn = self._turns.popleft()
            if not turn.done():  # if it is done, its process has ended
                turn.set_result(self._waiting.popleft())

    async def _next_task(self, process: ScoringProcess | None) -> _Task | None:
        """The next task; None if this process ends before there is one."""
        turn: asyncio.Future[_Task | None] = self._loop.create_future()
        self._turns.append(turn)
        if process is not None:
            process.tell_end(turn)
        self._dispatch()
        return await turn

    async def _slot(self) -> None:
        """Run one scoring process after the other."""
        while True:
            indices = self._loading.loadable()
            process = await ScoringProcess.start(self._order, indices, self._printer)
            try:
                if await self._load(process, indices):
                    while (task := await self._next_task(process)) is not None:
                        if not await self._score(task, process):
                            break
                    else:
                        # The process ended while it was idle. The next one may do the same, so it starts only when
                        # there is a task for it.
                        await self._until_there_is_work()
            finally:
                self._loading.gone(process.loaded)
                await process.end()

    async def _until_there_is_work(self) -> None:
        task = await self._next_task(None)
        assert task is not None
        self._schedule(task, first=True)

    async def _load(self, process: ScoringProcess, indices: Sequence[int]) -> bool:
        """Wait until the process has imported all functions, with or without success. False if it has ended."""
        index: int | None = None
        try:
            await process.hear(_started)
            self._loading.started()
            for index in indices:
                async with asyncio.timeout(self._order.load_timeout_seconds):
                    await process.hear(_loaded)
                process.loaded.append(index)
                self._loading.succeeded(index)
        except (TimeoutError, Ended) as error:
            if index is None or isinstance(error, Ended) or process.has_died:
                self._loading.ended(index, await process.fate())
            else:
                await process.end()
                self._loading.took_too_long(index)
        else:
            return True
        waiting, self._waiting = self._waiting, deque()
        for task in waiting:  # the tasks of a function that was given up are now reported
            self._schedule(task)
        return False

    async def _score(self, task: _Task, process: ScoringProcess) -> bool:
        """Have a task scored, and handle its result. False if the process cannot take another task."""
        is_first = task.function_index not in process.called
        limit = self._limits.of(task.function_index, samples=task.count, is_first=is_first)
        process.called.add(task.function_index)
        began, has_begun = self._loop.time(), False
        timeout = asyncio.timeout(limit.seconds)
        try:
            async with timeout:
                self._limits.watch(task.function_index, limit, timeout)
                await process.ask(_call_of(task, limit))
                await process.hear(_begun)
                has_begun = True
                answer = await process.hear(partial(_answer_of, task.count))
        except (TimeoutError, Ended) as error:
            if isinstance(error, Ended) or process.has_died:
                self._limits.forget(task.function_index, timeout)
                self._died(task, await process.fate(), has_begun=has_begun)
            else:
                self._limits.learn(task.function_index, limit, timeout, seconds=None)
                reason = limit.words(self._loop.time() - began)
                await process.end()
                self._failed(task, reason)
            return False
        if isinstance(answer, str):
            self._limits.forget(task.function_index, timeout)
            self._failed(task, answer)
        else:
            results, seconds = answer
            took_too_long = any(result.error == limit.reason for result in results)
            self._limits.learn(task.function_index, limit, timeout, seconds=None if took_too_long else seconds)
            self._report(task, results, seconds)
        return True

    def _failed(self, task: _Task, reason: str) -> None:
        """A task gave no results. One of its samples may be the cause: each gets a call of its own with a time limit
        of its own."""
        if task.count == 1:
            self._report(task, [CallResult({}, None, reason)], self._order.timeout_seconds)
            return
        if self._is_batch(task):
            self._reports.put(BatchRetry(function_index=task.function_index, count=task.count, reason=reason))
        for single in task.parts(1):
            self._schedule(single)

    def _died(self, task: _Task, fate: str, *, has_begun: bool) -> None:
        """The process of a task has ended. If it ended before the call began, another process takes the task."""
        if has_begun:
            self._failed(task, f"the process died in the call: {fate}")
            return
        for part in [task] if self._is_batch(task) else task.parts(1):
            if part.breaks + 1 >= MAX_BREAKS:
                reason = f"the scoring processes died {MAX_BREAKS} times before the call"
                self._report(part, [CallResult({}, None, reason)] * part.count, 0.0)
            else:
                self._schedule(replace(part, breaks=part.breaks + 1))

    def _report(self, task: _Task, results: list[CallResult], seconds: float) -> None:
        chunk = task.chunk
        report = Report(
            chunk=chunk.number,
            function_index=chunk.function_index,
            start=task.start,
            results=results,
            seconds=seconds,
        )
        self._reports.put(report)
        # A task that was given back unfinished has slow calls. The process got through so many samples in one slice of
        # time; the rest is scheduled in parts of that size, for all processes.
        for part in task.parts(len(results), done=len(results)):
            self._schedule(part)

    def _is_batch(self, task: _Task) -> bool:
        """Whether the task is one call with several samples."""
        return self._order.specs[task.function_index].style == "batch" and task.count > 1


def _started(words: list[Any]) -> None:
    _after("started", words)


def _loaded(words: list[Any]) -> None:
    _after("loaded", words)


def _begun(words: list[Any]) -> None:
    _after("begun", words)


def _answer_of(count: int, words: list[Any]) -> tuple[list[CallResult], float] | str:
    """The results of at most `count` samples and the seconds that they took; or why the whole batch failed. Raises
    ValueError or TypeError for any other answer."""
    if words[:1] == ["batch failed"]:
        return str(words[1])
    sent, seconds = _after("scored", words)
    results = [_result_of(*result) for result in sent]
    if not 0 < len(results) <= count:
        raise ValueError(f"{len(results)} results of {count} samples")
    return results, float(seconds)


def _result_of(components: Any, parsed: str | None, error: str | None) -> CallResult:
    return CallResult(components_of(components), parsed, None) if error is None else CallResult({}, None, str(error))


def _after(word: str, words: list[Any]) -> list[Any]:
    first, *rest = words
    if first != word:
        raise ValueError(f"{first!r}, not {word!r}")
    return rest


def _call_of(task: _Task, limit: CallLimit) -> Call:
    return Call(
        function_index=task.function_index,
        samples=task.chunk.samples,
        start=task.start,
        stop=task.stop,
        timeout_seconds=limit.call_seconds,
        timeout_reason=limit.reason,
    )


def main() -> None:
    """Serve the connection whose file descriptor is the first argument."""
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # nothing may mix with the run's standard output
    adopt_orphans()
    connection: Connection[Report | BatchRetry, Any] = Connection(int(sys.argv[1]))
    try:
        order = connection.recv()
    except EOFError:
        return
    assert isinstance(order, PoolOrder)
    asyncio.run(RewardServer(connection, order).serve())


if __name__ == "__main__":
    main()
