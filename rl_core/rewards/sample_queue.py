"""The queue in front of one reward function: how many samples a free process gets."""

from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass, replace

from rl_core.rewards.messages import CallResult, RewardSpec
from rl_core.rewards.sample import RewardSample

MAX_CHUNK = 256
"""Most samples that a process gets at a time. A batch is not split."""

CHUNK_SECONDS = 0.05
"""Expected scoring time of what a process gets at a time. A fast reward gets many samples; a slow one gets single
samples as the responses finish."""

Waiting = tuple[RewardSample, "Future[CallResult]"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Task:
    """What one process scores at a time: samples, at least one, with the futures of their results. So many processes
    (`breaks`) have ended after they took these samples and before the call began."""

    function_index: int
    waiting: list[Waiting]
    breaks: int = 0

    @property
    def count(self) -> int:
        """Number of samples."""
        return len(self.waiting)

    def parts(self, size: int, *, done: int = 0) -> list["Task"]:
        """The samples after the first `done` ones, in tasks of at most `size`."""
        starts = range(done, self.count, size)
        return [replace(self, waiting=self.waiting[start : start + size]) for start in starts]


class SampleQueue:
    """Holds the samples that wait. Not thread-safe.

    A plain function gets tasks whose size follows from the time of its calls. An `async def` function gets up to
    `async_calls` waiting samples. A batch function gets all samples at once, after `flush`.
    """

    def __init__(self, index: int, spec: RewardSpec, *, async_calls: int) -> None:
        self._index = index
        self._spec = spec
        self._async_calls = async_calls
        self._waiting: list[Waiting] = []
        self._returned: deque[Task] = deque()
        self._seconds_per_call: float | None = None
        self._flushed = False

    def add(self, sample: RewardSample) -> "Future[CallResult]":
        """Append a sample; the future gets its result."""
        future: Future[CallResult] = Future()
        self._flushed = False
        self._waiting.append((sample, future))
        return future

    def put_back(self, task: Task) -> None:
        """Samples that were taken and must be scored by another call."""
        self._returned.append(task)

    def flush(self) -> None:
        """No more samples come for now: do not wait until there are enough for a task."""
        self._flushed = True
        if self._spec.style == "batch":
            # The result of a batch function may depend on the order, so it must not be the order of arrival.
            self._waiting.sort(key=lambda waiting: (waiting[0].prompt_uid, waiting[0].sample_index))

    @property
    def has_task(self) -> bool:
        """Whether `next_task` would give one."""
        return bool(self._returned or (self._waiting and self._due()))

    def next_task(self) -> Task | None:
        """Take the samples off the queue that a free process should score now."""
        if self._returned:
            return self._returned.popleft()
        size = self._due()
        taken, self._waiting = self._waiting[:size], self._waiting[size:]
        return Task(function_index=self._index, waiting=taken) if taken else None

    def learn(self, seconds_per_call: float) -> None:
        """A call took so long. A slower call counts at once, a faster one gradually: one long call among short ones is
        soon forgotten."""
        self._seconds_per_call = max(seconds_per_call, 0.5 * (self._seconds_per_call or 0.0))

    def clear(self) -> list[Waiting]:
        """Take all samples off the queue."""
        found = [waiting for task in self._returned for waiting in task.waiting] + self._waiting
        self._returned, self._waiting = deque(), []
        return found

    def _due(self) -> int:
        """Size of the next task; 0 if there should be none yet."""
        if self._spec.style == "batch":
            return len(self._waiting) if self._flushed else 0
        if self._spec.is_async:
            return self._async_calls
        if self._seconds_per_call is None:  # until the first result, each process gets a single sample
            return 1
        size = max(1, min(MAX_CHUNK, int(CHUNK_SECONDS / max(self._seconds_per_call, 1e-9))))
        return size if self._flushed or len(self._waiting) >= size else 0
