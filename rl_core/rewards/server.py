"""The reward server: a small process between the run and the scoring processes.

`python -m rl_core.rewards.server FD` is started by RewardPool. It exists for three reasons. A spawned process imports
the main module of its parent: the run's is a command line, a test runner or a user's script, and may load torch and
vLLM; this one's is the file you read. Watching processes and clocks costs the generating process nothing. And when
the run is killed, in whatever way, its end of the connection closes, and the server takes a hanging reward down too.

One thread decides; a second one receives; pebble's own threads hand in finished tasks. All of them meet in one queue.
"""

import itertools
import multiprocessing
import os
import queue
import signal
import sys
import threading
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from typing import Any

from pebble import ProcessExpired, ProcessPool

from rl_core.rewards.judging import SLICE_SECONDS, BatchFailed, error_text, timeout_reason
from rl_core.rewards.messages import BatchRetry, Chunk, Outcome, PoolOrder, Report
from rl_core.rewards.spec import RewardSpec
from rl_core.rewards.worker import score_chunk, start_process

MAX_BREAKS = 3
"""A sample that was waiting or running when the pool broke this often has no score. One break is bad luck (a process
was killed from outside); a reward that cannot be loaded breaks every pool."""

ASYNC_GRACE_SECONDS = 2.0
"""Calls of `async def` functions end their own time in the process. It is killed after this much more: one of them
blocks the others."""

_WATCH_SECONDS = 0.5
"""A pool that breaks while no task of it has begun tells nobody, so it is looked at this often."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Task:
    """A stretch of a chunk that one process scores in one go."""

    chunk: Chunk
    start: int
    stop: int
    breaks: int = 0

    @property
    def count(self) -> int:
        return self.stop - self.start

    @property
    def is_single(self) -> bool:
        return self.count == 1

    def parts(self, size: int, *, done: int = 0) -> list["_Task"]:
        """What is left after the first `done` samples, in tasks of at most `size`."""
        starts = range(self.start + done, self.stop, size)
        return [replace(self, start=start, stop=min(start + size, self.stop)) for start in starts]


_Outcomes = tuple[list[Outcome], float]
_Finished = tuple[int, "Future[_Outcomes]"]


class RewardServer:
    """Turns chunks into reports until the connection ends."""

    def __init__(self, connection: "Connection[Report | BatchRetry, Chunk | None]", order: PoolOrder) -> None:
        self._connection = connection
        self._order = order
        self._events: queue.Queue[Chunk | _Finished | None] = queue.Queue()
        self._outstanding: dict[int, _Task] = {}
        self._numbers = itertools.count()
        self._pool = self._start_pool()

    def serve(self) -> None:
        """Runs until the other end closes, then kills what is still scoring."""
        threading.Thread(target=self._receive, name="reward-receiver", daemon=True).start()
        try:
            while (event := self._next_event()) is not None:
                if isinstance(event, Chunk):
                    self._schedule(_Task(chunk=event, start=0, stop=event.count))
                else:
                    self._finish(*event)
        except BrokenPipeError:
            return  # nobody waits for the reports any more
        finally:
            self._discard_pool()

    def _receive(self) -> None:
        try:
            while True:
                self._events.put(self._connection.recv())
        except (EOFError, ConnectionResetError):
            self._events.put(None)

    def _next_event(self) -> Chunk | _Finished | None:
        while True:
            try:
                return self._events.get(timeout=_WATCH_SECONDS if self._outstanding else None)
            except queue.Empty:
                if not self._pool.active:
                    self._replace_pool()

    def _schedule(self, task: _Task) -> None:
        number = next(self._numbers)
        self._outstanding[number] = task
        arguments = (task.chunk.lane, task.chunk.samples, task.start, task.stop)
        try:
            future = self._pool.schedule(score_chunk, args=arguments, timeout=self._limit(task))
        except RuntimeError:  # the pool broke while nothing ran in it
            self._replace_pool()
            return
        future.add_done_callback(lambda finished: self._events.put((number, finished)))

    def _limit(self, task: _Task) -> float:
        """Seconds after which the process of a task is killed."""
        spec = self._spec(task)
        if self._is_batch(task):
            return self._order.batch_timeout_seconds
        if spec.is_async:
            return self._order.timeout_seconds + ASYNC_GRACE_SECONDS
        # A single call has exactly its own limit; in a chunk the last call may begin just before the slice is over.
        return self._order.timeout_seconds + (0.0 if task.is_single else SLICE_SECONDS)

    def _spec(self, task: _Task) -> RewardSpec:
        return self._order.specs[task.chunk.lane]

    def _is_batch(self, task: _Task) -> bool:
        """Whether it is one call with several samples."""
        return self._spec(task).style == "batch" and not task.is_single

    def _finish(self, number: int, future: "Future[_Outcomes]") -> None:
        task = self._outstanding.pop(number, None)
        if task is None:  # it went to a new pool after this future's pool broke
            return
        error = future.exception()
        if error is None:
            self._report(task, *future.result())
        elif isinstance(error, BrokenProcessPool):
            self._outstanding[number] = task
            self._replace_pool()
        elif task.is_single:
            self._report_error(task, self._reason(error))
        else:  # one of its samples is to blame: each gets its own call, with the whole limit
            self._tell_of_batch(task, error)
            for single in task.parts(1):
                self._schedule(single)

    def _tell_of_batch(self, task: _Task, error: BaseException) -> None:
        if self._is_batch(task):
            limit = f"no result within reward.batch_timeout_seconds = {self._order.batch_timeout_seconds:g}"
            reason = limit if isinstance(error, TimeoutError) else self._reason(error)
            self._connection.send(BatchRetry(lane=task.chunk.lane, count=task.count, reason=reason))

    def _report(self, task: _Task, outcomes: list[Outcome], seconds: float) -> None:
        chunk = task.chunk
        report = Report(chunk=chunk.number, lane=chunk.lane, start=task.start, outcomes=outcomes, seconds=seconds)
        self._connection.send(report)
        # A task that was given back unfinished held slow calls: as many as it got through are a slice of time, and the
        # other processes take their share of the rest.
        for part in task.parts(len(outcomes), done=len(outcomes)):
            self._schedule(part)

    def _report_error(self, task: _Task, reason: str) -> None:
        self._report(task, [Outcome({}, None, reason)] * task.count, self._order.timeout_seconds * task.count)

    def _reason(self, error: BaseException) -> str:
        if isinstance(error, TimeoutError):
            return timeout_reason(self._order.timeout_seconds)
        if isinstance(error, BatchFailed):
            return str(error)
        if isinstance(error, ProcessExpired):
            return f"the process died in the call: {_exit_words(error.exitcode)}"
        return error_text(error)

    def _start_pool(self) -> ProcessPool:
        pool = ProcessPool(
            max_workers=self._order.workers,
            initializer=start_process,
            initargs=(self._order,),
            context=multiprocessing.get_context("spawn"),
        )
        if not pool.active:  # asking starts its processes, so that they are ready when the first chunk comes
            raise RuntimeError("the scoring processes did not start")
        return pool

    def _replace_pool(self) -> None:
        """A process died outside a call: go on with new ones, and take up what was waiting or running."""
        self._discard_pool()
        self._pool = self._start_pool()
        tasks, self._outstanding = list(self._outstanding.values()), {}
        for task in tasks:
            for part in [task] if self._is_batch(task) else task.parts(1):
                if part.breaks + 1 >= MAX_BREAKS:
                    self._report_error(part, f"the scoring processes died {MAX_BREAKS} times outside a call")
                else:
                    self._schedule(replace(part, breaks=part.breaks + 1))

    def _discard_pool(self) -> None:
        for process in multiprocessing.active_children():
            process.kill()
        self._pool.stop()  # type: ignore[no-untyped-call]
        self._pool.join()


def _exit_words(code: int) -> str:
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


def main() -> None:
    """Serve the connection whose file descriptor is the first argument."""
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what a reward prints must not mix with the run's output
    connection: Connection[Report | BatchRetry, Any] = Connection(int(sys.argv[1]))
    try:
        order = connection.recv()
    except EOFError:
        return
    assert isinstance(order, PoolOrder)
    RewardServer(connection, order).serve()


if __name__ == "__main__":
    main()
