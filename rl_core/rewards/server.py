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

from rl_core.rewards.messages import Chunk, Outcome, PoolOrder, Report
from rl_core.rewards.worker import SLICE_SECONDS, score_chunk, start_process

MAX_BREAKS = 3
"""A sample that was waiting or running when the pool broke this often has no score. One break is bad luck (a process
was killed from outside); a reward that cannot be loaded breaks every pool."""

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
    def is_single(self) -> bool:
        return self.stop - self.start == 1

    def parts(self, size: int, *, done: int = 0) -> list["_Task"]:
        """What is left after the first `done` samples, in tasks of at most `size`."""
        starts = range(self.start + done, self.stop, size)
        return [replace(self, start=start, stop=min(start + size, self.stop)) for start in starts]


_Outcomes = tuple[list[Outcome], float]
_Finished = tuple[int, "Future[_Outcomes]"]


class RewardServer:
    """Turns chunks into reports until the connection ends."""

    def __init__(self, connection: "Connection[Report, Chunk | None]", order: PoolOrder) -> None:
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
        # A single call has exactly its own limit; in a chunk the last call may begin just before the slice is over.
        limit = self._order.timeout_seconds + (0.0 if task.is_single else SLICE_SECONDS)
        arguments = (task.chunk.samples, task.start, task.stop)
        try:
            future = self._pool.schedule(score_chunk, args=arguments, timeout=limit)
        except RuntimeError:  # the pool broke while nothing ran in it
            self._replace_pool()
            return
        future.add_done_callback(lambda finished: self._events.put((number, finished)))

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
            for single in task.parts(1):
                self._schedule(single)

    def _report(self, task: _Task, outcomes: list[Outcome], seconds: float) -> None:
        report = Report(chunk=task.chunk.number, start=task.start, outcomes=outcomes, seconds=seconds)
        self._connection.send(report)
        # A task that was given back unfinished held slow calls: as many as it got through are a slice of time, and the
        # other processes take their share of the rest.
        for part in task.parts(len(outcomes), done=len(outcomes)):
            self._schedule(part)

    def _report_error(self, task: _Task, reason: str) -> None:
        self._report(task, [Outcome({}, None, reason)], self._order.timeout_seconds)

    def _reason(self, error: BaseException) -> str:
        if isinstance(error, TimeoutError):
            return f"no result within reward.timeout_seconds = {self._order.timeout_seconds:g}"
        if isinstance(error, ProcessExpired):
            return f"the process died in the call: {_exit_words(error.exitcode)}"
        return f"{type(error).__name__}: {error}"

    def _start_pool(self) -> ProcessPool:
        pool = ProcessPool(
            max_workers=self._order.workers,
            initializer=start_process,
            initargs=(self._order.spec, self._order.memory_limit_bytes),
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
            for single in task.parts(1):
                if single.breaks + 1 >= MAX_BREAKS:
                    self._report_error(single, f"the scoring processes died {MAX_BREAKS} times outside a call")
                else:
                    self._schedule(replace(single, breaks=single.breaks + 1))

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
    connection: Connection[Report, Any] = Connection(int(sys.argv[1]))
    try:
        order = connection.recv()
    except EOFError:
        return
    assert isinstance(order, PoolOrder)
    RewardServer(connection, order).serve()


if __name__ == "__main__":
    main()
