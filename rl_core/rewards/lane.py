"""The samples of one reward function: which of them travel to the scoring processes, and when."""

from collections.abc import Sequence
from concurrent.futures import Future

from rl_core.rewards.messages import CallResult, Report
from rl_core.rewards.sample import RewardSample
from rl_core.rewards.spec import RewardSpec

MAX_CHUNK = 64
"""Samples that travel together at most, a batch apart."""

CHUNK_SECONDS = 0.02
"""Expected work of a chunk: a fast reward gets large ones, a slow one single samples as the responses finish."""

Waiting = tuple[RewardSample, "Future[CallResult]"]


class Lane:
    """Holds what waits and what travels. Not safe for threads by itself: the pool locks.

    A plain function gets chunks sized by how long its calls take; an `async def` one whatever waits when a process is
    free, up to `async_calls`; a batch function everything at once, after the flush.
    """

    def __init__(self, spec: RewardSpec, *, workers: int, async_calls: int) -> None:
        self.spec = spec
        self._workers = workers
        self._async_calls = async_calls
        self._waiting: list[Waiting] = []
        self._travelling: dict[int, dict[int, Future[CallResult]]] = {}
        self._seconds_a_call: float | None = None
        self._flushed = False

    def add(self, sample: RewardSample) -> "Future[CallResult]":
        """Let a sample wait."""
        future: Future[CallResult] = Future()
        self._flushed = False
        self._waiting.append((sample, future))
        return future

    def flush(self) -> None:
        """No more samples come for now: hold nothing back for their sake."""
        self._flushed = True
        if self.spec.style == "batch":
            # In one order, whichever response finished first: what a batch function returns may depend on it.
            self._waiting.sort(key=lambda waiting: (waiting[0].prompt_uid, waiting[0].sample_index))

    def depart(self, number: int) -> list[RewardSample]:
        """Send samples on their way as chunk `number`; empty when what waits should wait on."""
        size = self._due()
        leaving, self._waiting = self._waiting[:size], self._waiting[size:]
        if leaving:
            self._travelling[number] = dict(enumerate(future for _, future in leaving))
        return [sample for sample, _ in leaving]

    def arrive(self, report: Report) -> "list[Future[CallResult]]":
        """The futures that a report answers, in its order."""
        travelling = self._travelling[report.chunk]
        futures = [travelling.pop(report.start + offset) for offset in range(len(report.outcomes))]
        if not travelling:
            del self._travelling[report.chunk]
        seconds = report.seconds / len(report.outcomes)
        # A rise counts at once, a fall by and by: one long call among short ones is soon forgotten.
        self._seconds_a_call = max(seconds, 0.5 * (self._seconds_a_call or 0.0))
        return futures

    def abandon(self) -> "Sequence[Future[CallResult]]":
        """Give up on all samples. Returns their futures."""
        futures = [future for travelling in self._travelling.values() for future in travelling.values()]
        futures += [future for _, future in self._waiting]
        self._travelling, self._waiting = {}, []
        return futures

    def _due(self) -> int:
        """Samples of the next chunk; 0 to hold all back."""
        if self.spec.style == "batch":
            return len(self._waiting) if self._flushed else 0
        every_process_is_busy = len(self._travelling) >= self._workers
        if self.spec.is_async:
            return 0 if every_process_is_busy else self._async_calls
        if self._seconds_a_call is None:  # until the first report tells, one single sample a process
            return 0 if every_process_is_busy else 1
        size = max(1, min(MAX_CHUNK, int(CHUNK_SECONDS / max(self._seconds_a_call, 1e-9))))
        return size if self._flushed or len(self._waiting) >= size else 0
