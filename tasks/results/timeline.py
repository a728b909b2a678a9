"""Who did what when: the work of each worker in the last steps, from the run's timings."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

_STEPS: Final = 3
"""Steps that are shown."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Bar:
    """A stretch of work: its kind, and its begin and length in shares of the time that is shown."""

    work: str
    begin: float
    length: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Timeline:
    """The last steps of a run: their time together, and [worker] -> its work, in the order of time."""

    first_step: int
    last_step: int
    seconds: float
    workers: Sequence[Sequence[Bar]]


def timeline(timings: Sequence[Mapping[str, Any]]) -> Timeline | None:
    """The timeline of the last steps that ran on the same number of workers; None where no work was recorded. `spans`
    of a line of timings.jsonl is [worker] -> what it did: kind of work, begin and end in Unix seconds."""
    lines = [line for line in timings[-_STEPS:] if any(line.get("spans", ()))]
    if not lines:
        return None
    shown = [line for line in lines if len(line["spans"]) == len(lines[-1]["spans"])]
    spans = [[span for line in shown for span in line["spans"][number]] for number in range(len(shown[-1]["spans"]))]
    begin = min(span[1] for of_worker in spans for span in of_worker)
    end = max(span[2] for of_worker in spans for span in of_worker)
    whole = max(end - begin, 1e-9)
    return Timeline(
        first_step=shown[0]["step"],
        last_step=shown[-1]["step"],
        seconds=end - begin,
        workers=[
            [Bar(work=work, begin=(start - begin) / whole, length=(stop - start) / whole) for work, start, stop in own]
            for own in spans
        ],
    )
