"""What workers have used in a step: their time, and their memory. Loads no torch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, get_args

Work = Literal["sync", "generate", "update", "save", "load"]
"""Waking the generator and giving it the weights; generating; all passes of the trainer; saving; loading."""

WORK: Final[tuple[Work, ...]] = get_args(Work)

Span = tuple[Work, float, float]
"""What a worker did, and from when to when, in Unix seconds."""

Columns = Mapping[str, Sequence[float | str | None]]
"""[name] -> [worker] -> value; None where a worker has none."""

Spans = Sequence[Sequence[Span]]
"""[worker] -> its spans, in the order of time."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkerUsage:
    """What one worker has used since it was last asked (rl_core.workers.usage_meter). `device` is "CPU with 2
    thread(s)", or the name of a card."""

    host: str
    device: str
    seconds: Mapping[str, float]
    peaks: Mapping[str, float]
    spans: Sequence[Span] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Usage:
    """What the workers of a run have used since they were last asked. `sent_mib` is what was sent to workers in other
    processes; None if there are none."""

    workers: Sequence[WorkerUsage]
    sent_mib: float | None = None

    @property
    def together(self) -> dict[str, float]:
        """The largest peaks of all workers, and `sent_mib`, by name."""
        sent = {} if self.sent_mib is None else {"sent_mib": self.sent_mib}
        return {**_largest([worker.peaks for worker in self.workers]), **sent}

    @property
    def columns(self) -> Columns:
        """Host, device, seconds and peaks of each worker; the numbers to a tenth of a thousandth."""
        values: list[dict[str, float | str]] = [
            {"host": worker.host, "device": worker.device, **_rounded(worker.seconds), **_rounded(worker.peaks)}
            for worker in self.workers
        ]
        names = dict.fromkeys(name for of_worker in values for name in of_worker)
        return {name: [of_worker.get(name) for of_worker in values] for name in names}

    @property
    def spans(self) -> Spans:
        """What each worker did when, to a thousandth of a second."""
        return [
            [(work, round(begin, 3), round(end, 3)) for work, begin, end in worker.spans] for worker in self.workers
        ]


def _rounded(values: Mapping[str, float]) -> dict[str, float]:
    return {name: round(value, 4) for name, value in values.items()}


def _largest(found: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The largest value of each name; a name that a worker does not have counts for the others alone."""
    names = dict.fromkeys(name for values in found for name in values)
    return {name: max(values[name] for values in found if name in values) for name in names}
