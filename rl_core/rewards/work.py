"""The work of a reward pool, which its threads share: the samples that wait, and how the work ends."""

import threading
from collections import deque
from collections.abc import Iterable, Sequence
from concurrent.futures import Future

from rl_core.rewards.messages import CallResult, PoolOrder
from rl_core.rewards.sample import RewardSample
from rl_core.rewards.sample_queue import SampleQueue, Task, Waiting


class Stopped(Exception):
    """The pool is closed, or one of its threads has failed."""


class Work:
    """Hands samples to the threads of a pool, and results to the samples' futures. Thread-safe."""

    def __init__(self, order: PoolOrder, *, async_calls: int) -> None:
        self._queues = [SampleQueue(index, spec, async_calls=async_calls) for index, spec in enumerate(order.specs)]
        self._turns = deque(self._queues)
        self._problems: dict[int, str] = {}
        self._changed = threading.Condition()
        self._end: str | None = None
        self._cause: Exception | None = None

    def add(self, function_index: int, sample: RewardSample) -> "Future[CallResult]":
        """Have a sample scored by a function. Raises RuntimeError when the work has stopped."""
        with self._changed:
            if self._end is not None:
                raise self._no_results_error()
            if (reason := self._problems.get(function_index)) is None:
                queue = self._queues[function_index]
                future = queue.add(sample)
                if queue.has_task:
                    self._changed.notify()
                return future
        future = Future()
        _fail([(sample, future)], reason)
        return future

    def flush(self) -> None:
        """Score the samples that were held back, without those that are added later."""
        with self._changed:
            for queue in self._queues:
                queue.flush()
            self._changed.notify_all()

    def next_task(self) -> Task:
        """Wait for the next task. The functions take turns. Raises Stopped when there are no more."""
        with self._changed:
            while self._end is None:
                for queue in self._turns:
                    if (task := queue.next_task()) is not None:
                        self._turns.remove(queue)
                        self._turns.append(queue)
                        return task
                self._changed.wait()
            raise Stopped

    def put_back(self, tasks: Iterable[Task]) -> None:
        """Have the samples of tasks scored by other calls."""
        for task in tasks:
            with self._changed:
                if (reason := self._problems.get(task.function_index)) is None and self._end is None:
                    self._queues[task.function_index].put_back(task)
                    self._changed.notify()
                    continue
            if reason is None:
                self.abandon(task.waiting)
            else:
                _fail(task.waiting, reason)

    def deliver(self, task: Task, results: Sequence[CallResult], *, seconds: float) -> None:
        """The results of the first samples of a task, which took so many seconds together. A task that was given back
        unfinished has slow calls: all processes share the rest, in parts of the size that was finished."""
        # The queue no longer knows these futures, so nothing that may fail comes before they have their results.
        for (_, future), result in zip(task.waiting, results, strict=False):
            future.set_result(result)
        with self._changed:
            queue = self._queues[task.function_index]
            queue.learn(seconds / len(results))
            if queue.has_task:  # after a slow call, fewer samples are enough for a task
                self._changed.notify_all()
        self.put_back(task.parts(len(results), done=len(results)))

    def give_up_function(self, index: int, reason: str) -> None:
        """A function cannot be loaded: each of its samples gets the reason."""
        with self._changed:
            self._problems.setdefault(index, reason)
            found = self._queues[index].clear()
        _fail(found, reason)

    def is_given_up(self, index: int) -> bool:
        """Whether a function cannot be loaded."""
        return index in self._problems

    @property
    def has_stopped(self) -> bool:
        """Whether the processes should end."""
        return self._end is not None

    def stop(self, cause: Exception | None = None) -> None:
        """The pool is closed, or a thread failed with `cause`."""
        with self._changed:
            if self._end is not None:
                return
            self._cause = cause
            self._end = "the reward pool is closed" if cause is None else _end_words(cause)
            found = [waiting for queue in self._queues for waiting in queue.clear()]
            self._changed.notify_all()
        self.abandon(found)

    def abandon(self, found: Iterable[Waiting]) -> None:
        """The work has stopped, and these samples get no result."""
        for _, future in found:
            if future.done():
                continue
            if self._cause is None:
                future.cancel()
            else:
                future.set_exception(self._no_results_error())

    def _no_results_error(self) -> RuntimeError:
        error = RuntimeError(self._end)
        error.__cause__ = self._cause
        return error


def _end_words(cause: Exception) -> str:
    return (
        f"rewards cannot be scored any more: {type(cause).__name__}: {cause}; fix this (if the disk is full, free some "
        "space), then start the run again to continue"
    )


def _fail(found: Iterable[Waiting], reason: str) -> None:
    for _, future in found:
        future.set_result(CallResult({}, None, reason))
