"""The queue in front of one reward function: which samples are sent to the scoring processes, and when."""

from collections.abc import Sequence
from concurrent.futures import Future

from rl_core.rewards.messages import CallResult, Report
from rl_core.rewards.sample import RewardSample
from rl_core.rewards.spec import RewardSpec

MAX_CHUNK = 64
"""Most samples in one chunk. A batch is not split."""

CHUNK_SECONDS = 0.02
"""Expected scoring time of a chunk. A fast reward gets large chunks; a slow one gets single samples as the responses
finish."""


class SampleQueue:
    """Holds the samples that wait and the futures of those that were sent. Not thread-safe: the pool locks.

    A plain function gets chunks whose size follows from the time of its calls. An `async def` function gets up to
    `async_calls` waiting samples whenever a process is free. A batch function gets all samples at once, after `flush`.
    """

    def __init__(self, spec: RewardSpec, *, workers: int, async_calls: int) -> None:
        self.spec = spec
        self._workers = workers
        self._async_calls = async_calls
        self._waiting: list[tuple[RewardSample, Future[CallResult]]] = []
        self._sent: dict[int, dict[int, Future[CallResult]]] = {}
        self._seconds_per_call: float | None = None
        self._flushed = False

    def add(self, sample: RewardSample) -> "Future[CallResult]":
        """Append a sample; the future gets its result."""
        future: Future[CallResult] = Future()
        self._flushed = False
        self._waiting.append((sample, future))
        return future

    def flush(self) -> None:
        """No more samples come for now: do not wait for a chunk to fill up."""
        self._flushed = True
        if self.spec.style == "batch":
            # The result of a batch function may depend on the order, so it must not be the order of arrival.
            self._waiting.sort(key=lambda waiting: (waiting[0].prompt_uid, waiting[0].sample_index))

    def next_chunk(self, number: int) -> list[RewardSample]:
        """Take the samples of chunk `number` off the queue; an empty list if none should be sent yet."""
        size = self._due()
        chunk, self._waiting = self._waiting[:size], self._waiting[size:]
        if chunk:
            self._sent[number] = dict(enumerate(future for _, future in chunk))
        return [sample for sample, _ in chunk]

    def take_report(self, report: Report) -> "list[Future[CallResult]]":
        """Forget the samples of a report. Returns their futures in the order of the report's results."""
        sent = self._sent[report.chunk]
        futures = [sent.pop(report.start + offset) for offset in range(len(report.results))]
        if not sent:
            del self._sent[report.chunk]
        seconds = report.seconds / len(report.results)
        # A slower call counts at once, a faster one gradually: one long call among short ones is soon forgotten.
        self._seconds_per_call = max(seconds, 0.5 * (self._seconds_per_call or 0.0))
        return futures

    def abandon(self) -> "Sequence[Future[CallResult]]":
        """Give up on all samples. Returns their futures."""
        futures = [future for sent in self._sent.values() for future in sent.values()]
        futures += [future for _, future in self._waiting]
        self._sent, self._waiting = {}, []
        return futures

    def _due(self) -> int:
        """Size of the next chunk; 0 if nothing should be sent yet."""
        if self.spec.style == "batch":
            return len(self._waiting) if self._flushed else 0
        every_process_is_busy = len(self._sent) >= self._workers
        if self.spec.is_async:
            return 0 if every_process_is_busy else self._async_calls
        if self._seconds_per_call is None:  # until the first report, each process gets a single sample
            return 0 if every_process_is_busy else 1
        size = max(1, min(MAX_CHUNK, int(CHUNK_SECONDS / max(self._seconds_per_call, 1e-9))))
        return size if self._flushed or len(self._waiting) >= size else 0
