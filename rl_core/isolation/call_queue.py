"""The queue in front of one function: how many inputs a free process gets."""

from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass, replace

from rl_core.isolation.order import Input, Result, Spec

MAX_CHUNK = 64
"""Most inputs that a process gets at a time. A batch is not split."""

CHUNK_SECONDS = 0.02
"""Expected time of the calls of what a process gets at a time. A fast function gets many inputs; a slow one gets single
inputs as they come, as one does whose calls must not be made twice."""

Waiting = tuple[Input, "Future[Result]"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Task:
    """What one process gets at a time. So many processes (`breaks`) have ended after they took these inputs and before
    the call began."""

    function_index: int
    waiting: list[Waiting]
    breaks: int = 0

    @property
    def count(self) -> int:
        """Number of inputs."""
        return len(self.waiting)

    def parts(self, size: int, *, done: int = 0) -> list["Task"]:
        """The inputs after the first `done` ones, in tasks of at most `size`."""
        starts = range(done, self.count, size)
        return [replace(self, waiting=self.waiting[start : start + size]) for start in starts]


class CallQueue:
    """Holds the inputs that wait. The size of a plain function's tasks follows from the time of its calls. Not
    thread-safe."""

    def __init__(self, index: int, spec: Spec, *, async_calls: int) -> None:
        self._index = index
        self._spec = spec
        self._async_calls = async_calls
        self._waiting: list[Waiting] = []
        self._flushed = 0  # so many inputs, the oldest, no longer wait until there are enough for a task
        self._ready: deque[Task] = deque()  # batches, and what was put back
        self._seconds_per_call: float | None = None

    def add(self, one: Input) -> "Future[Result]":
        """Append an input."""
        future: Future[Result] = Future()
        self._waiting.append((one, future))
        return future

    def put_back(self, task: Task) -> None:
        """Have inputs that were taken done by another call."""
        self._ready.append(task)

    def flush(self) -> None:
        """The inputs that wait do not wait for later ones. They are one batch of a batch function."""
        if not self._spec.is_batch:
            self._flushed = len(self._waiting)
        elif self._waiting:
            # The result of a batch function may depend on the order, so it must not be the order of arrival.
            batch = sorted(self._waiting, key=lambda waiting: waiting[0].key)
            self._ready.append(Task(function_index=self._index, waiting=batch))
            self._waiting = []

    @property
    def has_task(self) -> bool:
        """Whether `next_task` would give one."""
        return bool(self._ready or (self._waiting and self._due()))

    def next_task(self) -> Task | None:
        """Take the inputs off the queue that a free process should get now."""
        if self._ready:
            return self._ready.popleft()
        size = self._due()
        taken, self._waiting = self._waiting[:size], self._waiting[size:]
        self._flushed = max(0, self._flushed - size)
        return Task(function_index=self._index, waiting=taken) if taken else None

    def learn(self, seconds_per_call: float) -> None:
        """A call took so long. A slower call counts at once, a faster one gradually."""
        self._seconds_per_call = max(seconds_per_call, 0.5 * (self._seconds_per_call or 0.0))

    def clear(self) -> list[Waiting]:
        """Take all inputs off the queue."""
        found = [waiting for task in self._ready for waiting in task.waiting] + self._waiting
        self._ready, self._waiting, self._flushed = deque(), [], 0
        return found

    def _due(self) -> int:
        """Size of the next task of inputs that wait; 0 if there should be none yet."""
        if self._spec.is_batch:
            return 0
        if self._spec.is_async:
            return self._async_calls
        if self._spec.is_outside or self._seconds_per_call is None:  # a process gets a single input
            return 1
        size = max(1, min(MAX_CHUNK, int(CHUNK_SECONDS / max(self._seconds_per_call, 1e-9))))
        return size if self._flushed or len(self._waiting) >= size else 0
