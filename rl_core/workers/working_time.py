"""The part of its time in which a worker works, and at what; the rest it waits for others."""

import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Final, Literal, TypeVar, get_args

from rl_core.timing import PhaseTimer

Work = Literal["sync", "generate", "update", "save", "load"]
"""Waking the generator and giving it the weights; generating; all passes of the trainer; saving; loading."""

Value = TypeVar("Value")

Span = tuple[Work, float, float]
"""What a worker did, and from when to when, in Unix seconds."""

_ONE_SPAN_SECONDS: Final = 0.02
"""Rollouts that come one after the other are one span."""

WORK: Final[tuple[Work, ...]] = get_args(Work)


class WorkingTime:
    """Measures for how long a worker works.

    Ranks wait for each other within a pass of the trainer, at every gathering of weights. This counts as work; a rank
    of which it is a large part has few processor seconds beside the others, on a CPU.
    """

    def __init__(self) -> None:
        """Begin to measure."""
        self._timer = PhaseTimer()
        self._processor = time.process_time()
        self._spans: list[Span] = []

    @contextmanager
    def at(self, work: Work) -> Iterator[None]:
        """Count the body of a `with` block."""
        begin = time.time()
        try:
            with self._timer.phase(work):
                yield
        finally:
            self._note(work, begin, time.time())

    def spent_on(self, work: Work, values: Iterator[Value]) -> Generator[Value]:
        """The values, counting the time until each of them is there, but not what the caller does in between."""
        try:
            while True:
                with self.at(work):
                    try:
                        value = next(values)
                    except StopIteration:
                        return
                yield value
        finally:
            if isinstance(values, Generator):
                values.close()

    def take(self) -> dict[str, float]:
        """Seconds by name since the last call: `generate_s` and so on for each kind of work, `idle_s` for the rest,
        `total_s` for all, and `processor_s` of all threads of this process."""
        found, processor = self._timer.result(), time.process_time()
        seconds = {f"{work}_s": found.get(work, 0.0) for work in WORK}
        times = {**seconds, "idle_s": found["other"], "total_s": found["total"]}
        times["processor_s"] = processor - self._processor
        self._timer, self._processor = PhaseTimer(), processor
        return times

    def take_spans(self) -> list[Span]:
        """What was done since the last call, in its order."""
        spans, self._spans = self._spans, []
        return spans

    def _note(self, work: Work, begin: float, end: float) -> None:
        """Add a span, or prolong the last one, if it is of the same work and hardly ended before."""
        if self._spans:
            last_work, last_begin, last_end = self._spans[-1]
            if last_work == work and begin - last_end < _ONE_SPAN_SECONDS:
                self._spans[-1] = (work, last_begin, end)
                return
        self._spans.append((work, begin, end))
