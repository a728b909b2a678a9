"""The reward server: a small process between the run and the scoring processes.

`python -m rl_core.rewards.server FD` is started by RewardPool. It exists for three reasons. The run's main module is a
command line, a test runner or a user's script, and may have loaded torch and vLLM; what a scoring process is started
from is the few files below this one. Watching processes and clocks costs the generating process nothing. And when the
run is killed, in whatever way, its end of the connection closes, and the server takes a hanging reward down too.

It decides in one thread, an event loop: a coroutine a scoring process, one process after the other. Two threads beside
it receive what the run sends and send what it is to know.
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
from rl_core.rewards.keeper import adopt_orphans
from rl_core.rewards.loading_record import LoadingRecord
from rl_core.rewards.messages import BatchRetry, Call, CallResult, Chunk, PoolOrder, Report
from rl_core.rewards.printed import Printer
from rl_core.rewards.scoring_process import Ended, ScoringProcess

MAX_BREAKS = 3
"""A sample whose process was gone this often before its call began has no score. Once is bad luck: a process was killed
from outside."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Task:
    """A stretch of a chunk that one process scores in one go."""

    chunk: Chunk
    start: int
    stop: int
    breaks: int = 0

    @property
    def lane(self) -> int:
        return self.chunk.lane

    @property
    def count(self) -> int:
        return self.stop - self.start

    def parts(self, size: int, *, done: int = 0) -> list["_Task"]:
        """What is left after the first `done` samples, in tasks of at most `size`."""
        starts = range(self.start + done, self.stop, size)
        return [replace(self, start=start, stop=min(start + size, self.stop)) for start in starts]


class RewardServer:
    """Turns chunks into reports until the connection ends."""

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
        """Runs until the other end closes, then ends what is still scoring."""
        self._loop = asyncio.get_running_loop()
        self._closed = self._loop.create_future()
        for work in (self._receive, self._send):
            threading.Thread(target=work, name=f"reward{work.__name__}", daemon=True).start()
        seats = [asyncio.ensure_future(self._seat()) for _ in range(self._order.workers)]
        try:
            await asyncio.wait([self._closed, *seats], return_when=asyncio.FIRST_COMPLETED)
            for seat in seats:
                if seat.done():
                    seat.result()  # a seat ends by a mistake of ours alone
        finally:
            for seat in seats:
                seat.cancel()
            await asyncio.gather(*seats, return_exceptions=True)
            self._printer.close()

    def _receive(self) -> None:
        """A thread: what the run sends goes to the loop."""
        try:
            while (chunk := self._connection.recv()) is not None:
                self._loop.call_soon_threadsafe(self._schedule, _Task(chunk=chunk, start=0, stop=chunk.count))
        except (EOFError, ConnectionResetError):
            pass
        self._loop.call_soon_threadsafe(self._close)

    def _send(self) -> None:
        """A thread: a run that is slow to read holds no clock up."""
        try:
            while (report := self._reports.get()) is not None:
                self._connection.send(report)
        except (BrokenPipeError, ConnectionResetError):  # nobody waits for the reports any more
            self._loop.call_soon_threadsafe(self._close)

    def _close(self) -> None:
        if not self._closed.done():
            self._closed.set_result(None)

    def _schedule(self, task: _Task, *, first: bool = False) -> None:
        """Let a task wait for a process; the answer is known where its function cannot be loaded."""
        if (reason := self._loading.problem(task.lane)) is not None:
            self._report(task, [CallResult({}, None, reason)] * task.count, 0.0)
            return
        (self._waiting.appendleft if first else self._waiting.append)(task)
        self._dispatch()

    def _dispatch(self) -> None:
        """Tasks to the processes that wait for one."""
        while self._waiting and self._turns:
            turn = self._turns.popleft()
            if not turn.done():  # else its process has ended
                turn.set_result(self._waiting.popleft())

    async def _next_task(self, process: ScoringProcess | None) -> _Task | None:
        """The next task; None when this process ends before one comes."""
        turn: asyncio.Future[_Task | None] = self._loop.create_future()
        self._turns.append(turn)
        if process is not None:
            process.tell_end(turn)
        self._dispatch()
        return await turn

    async def _seat(self) -> None:
        """One scoring process after the other."""
        while True:
            lanes = self._loading.lanes()
            process = await ScoringProcess.start(self._order, lanes, self._printer)
            try:
                if await self._load(process, lanes):
                    while (task := await self._next_task(process)) is not None:
                        if not await self._score(task, process):
                            break
                    else:
                        # It died while it had nothing to do, and so may the next one: not before it has something.
                        await self._until_there_is_work()
            finally:
                self._loading.gone(process.loaded)
                await process.end()

    async def _until_there_is_work(self) -> None:
        task = await self._next_task(None)
        assert task is not None
        self._schedule(task, first=True)

    async def _load(self, process: ScoringProcess, lanes: Sequence[int]) -> bool:
        """Whether all functions are loaded there, or have said why not; else the process has ended."""
        lane: int | None = None
        try:
            await process.hear(_started)
            self._loading.started()
            for lane in lanes:
                async with asyncio.timeout(self._order.load_timeout_seconds):
                    await process.hear(_loaded)
                process.loaded.append(lane)
                self._loading.succeeded(lane)
        except (TimeoutError, Ended) as error:
            if lane is None or isinstance(error, Ended) or process.has_died:
                self._loading.ended(lane, await process.fate())
            else:
                await process.end()
                self._loading.took_too_long(lane)
        else:
            return True
        waiting, self._waiting = self._waiting, deque()
        for task in waiting:  # those of a function that was given up have their answer now
            self._schedule(task)
        return False

    async def _score(self, task: _Task, process: ScoringProcess) -> bool:
        """Have a task scored, and deal with what comes of it. Whether the process can take another one."""
        is_first = task.lane not in process.called
        limit = self._limits.of(task.lane, samples=task.count, is_first=is_first)
        process.called.add(task.lane)
        began, has_begun = self._loop.time(), False
        timeout = asyncio.timeout(limit.seconds)
        try:
            async with timeout:
                self._limits.watch(task.lane, limit, timeout)
                await process.ask(_call_of(task, limit))
                await process.hear(_begun)
                has_begun = True
                answer = await process.hear(partial(_answer_of, task.count))
        except (TimeoutError, Ended) as error:
            if isinstance(error, Ended) or process.has_died:
                self._limits.forget(task.lane, timeout)
                self._died(task, await process.fate(), has_begun=has_begun)
            else:
                self._limits.learn(task.lane, limit, timeout, seconds=None)
                reason = limit.words(self._loop.time() - began)
                await process.end()
                self._failed(task, reason)
            return False
        if isinstance(answer, str):
            self._limits.forget(task.lane, timeout)
            self._failed(task, answer)
        else:
            outcomes, seconds = answer
            took_too_long = any(outcome.error == limit.reason for outcome in outcomes)
            self._limits.learn(task.lane, limit, timeout, seconds=None if took_too_long else seconds)
            self._report(task, outcomes, seconds)
        return True

    def _failed(self, task: _Task, reason: str) -> None:
        """No outcome came of a task. One of its samples is to blame: each gets its own call, with the whole limit."""
        if task.count == 1:
            self._report(task, [CallResult({}, None, reason)], self._order.timeout_seconds)
            return
        if self._is_batch(task):
            self._reports.put(BatchRetry(lane=task.lane, count=task.count, reason=reason))
        for single in task.parts(1):
            self._schedule(single)

    def _died(self, task: _Task, fate: str, *, has_begun: bool) -> None:
        """Its process is gone. If that was before the call began, another one takes the task."""
        if has_begun:
            self._failed(task, f"the process died in the call: {fate}")
            return
        for part in [task] if self._is_batch(task) else task.parts(1):
            if part.breaks + 1 >= MAX_BREAKS:
                reason = f"the scoring processes died {MAX_BREAKS} times before the call"
                self._report(part, [CallResult({}, None, reason)] * part.count, 0.0)
            else:
                self._schedule(replace(part, breaks=part.breaks + 1))

    def _report(self, task: _Task, outcomes: list[CallResult], seconds: float) -> None:
        chunk = task.chunk
        report = Report(chunk=chunk.number, lane=chunk.lane, start=task.start, outcomes=outcomes, seconds=seconds)
        self._reports.put(report)
        # A task that was given back unfinished held slow calls: as many as it got through are a slice of time, and the
        # other processes take their share of the rest.
        for part in task.parts(len(outcomes), done=len(outcomes)):
            self._schedule(part)

    def _is_batch(self, task: _Task) -> bool:
        """Whether it is one call with several samples."""
        return self._order.specs[task.lane].style == "batch" and task.count > 1


def _started(words: list[Any]) -> None:
    _after("started", words)


def _loaded(words: list[Any]) -> None:
    _after("loaded", words)


def _begun(words: list[Any]) -> None:
    _after("begun", words)


def _answer_of(count: int, words: list[Any]) -> tuple[list[CallResult], float] | str:
    """The outcomes of at most `count` samples and the seconds that they took; or why the whole batch failed. Raises
    ValueError or TypeError for anything else."""
    if words[:1] == ["batch failed"]:
        return str(words[1])
    spoken, seconds = _after("scored", words)
    outcomes = [_outcome_of(*outcome) for outcome in spoken]
    if not 0 < len(outcomes) <= count:
        raise ValueError(f"{len(outcomes)} outcomes of {count} samples")
    return outcomes, float(seconds)


def _outcome_of(components: Any, parsed: str | None, error: str | None) -> CallResult:
    return CallResult(components_of(components), parsed, None) if error is None else CallResult({}, None, str(error))


def _after(word: str, words: list[Any]) -> list[Any]:
    first, *rest = words
    if first != word:
        raise ValueError(f"{first!r}, not {word!r}")
    return rest


def _call_of(task: _Task, limit: CallLimit) -> Call:
    return Call(
        lane=task.lane,
        samples=task.chunk.samples,
        start=task.start,
        stop=task.stop,
        timeout_seconds=limit.call_seconds,
        timeout_reason=limit.reason,
    )


def main() -> None:
    """Serve the connection whose file descriptor is the first argument."""
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # nothing here must mix with the run's output
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
