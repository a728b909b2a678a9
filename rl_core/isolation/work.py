"""The work of a pool, which its threads share: the inputs that wait, and how the work ends."""

import threading
from collections import deque
from collections.abc import Iterable, Sequence
from concurrent.futures import Future

from rl_core.isolation.call_queue import CallQueue, Task, Waiting
from rl_core.isolation.order import Input, Order, Result


class Stopped(Exception):
    """The pool is closed, or one of its threads has failed."""


class Work:
    """Hands inputs to the threads of a pool, and results to the inputs' futures. Thread-safe."""

    def __init__(self, order: Order, *, async_calls: int) -> None:
        self._order = order
        self._queues = [CallQueue(index, spec, async_calls=async_calls) for index, spec in enumerate(order.specs)]
        self._turns = deque(self._queues)
        self._problems: dict[int, str] = {}
        self._changed = threading.Condition()
        self._end: str | None = None
        self._cause: Exception | None = None

    def add(self, function_index: int, one: Input) -> "Future[Result]":
        """Have a function called with an input. Raises RuntimeError when the work has stopped."""
        with self._changed:
            if self._end is not None:
                raise self._no_results_error()
            if (reason := self._problems.get(function_index)) is None:
                queue = self._queues[function_index]
                future = queue.add(one)
                if queue.has_task:
                    self._changed.notify()
                return future
        future = Future()
        self._fail([(one, future)], reason)
        return future

    def flush(self) -> None:
        """Have the inputs done that were held back, without those that are added later."""
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
        """Have the inputs of tasks done by other calls."""
        for task in tasks:
            with self._changed:
                if (reason := self._problems.get(task.function_index)) is None and self._end is None:
                    self._queues[task.function_index].put_back(task)
                    self._changed.notify()
                    continue
            if reason is None:
                self.abandon(task.waiting)
            else:
                self._fail(task.waiting, reason)

    def deliver(self, task: Task, results: Sequence[Result], *, seconds: float) -> None:
        """The results of the first inputs of a task, which took so many seconds together. A task that was given back
        unfinished has slow calls: all processes share the rest, in parts of the size that was finished."""
        # The queue no longer knows these futures, so nothing that may fail comes before they have their results.
        for (_, future), result in zip(task.waiting, results, strict=False):
            future.set_result(result)
        with self._changed:
            queue = self._queues[task.function_index]
            queue.learn(seconds / len(results))
            if queue.has_task:  # after a slow call, fewer inputs are enough for a task
                self._changed.notify_all()
        self.put_back(task.parts(len(results), done=len(results)))

    def give_up_function(self, index: int, reason: str) -> None:
        """A function cannot be loaded: each of its inputs gets the reason."""
        with self._changed:
            self._problems.setdefault(index, reason)
            found = self._queues[index].clear()
        self._fail(found, reason)

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
            self._end = self._end_words(cause)
            found = [waiting for queue in self._queues for waiting in queue.clear()]
            self._changed.notify_all()
        self.abandon(found)

    def abandon(self, found: Iterable[Waiting]) -> None:
        """The work has stopped, and these inputs get no result."""
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

    def _end_words(self, cause: Exception | None) -> str:
        functions = f"{self._order.kind} functions"
        if cause is None:
            return f"the pool of {functions} is closed"
        return (
            f"{functions} cannot be called any more: {type(cause).__name__}: {cause}; fix this (if the disk is full, "
            "free some space), then start the run again to continue"
        )

    def _fail(self, found: Iterable[Waiting], reason: str) -> None:
        for _, future in found:
            future.set_result(self._order.failed(reason))
