"""How each worker of a run spent its time, and how much memory it took, from the run's timings."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

_WORK: Final = {
    "generating": ("generate_s",),
    "training": ("update_s",),
    "weights": ("sync_s", "save_s", "load_s"),
    "idle": ("idle_s",),
}
"""[what a worker does, as it is shown] -> the columns of timings.jsonl."""

_PEAKS: Final = ("_gpu_used_gib", "_peak_gib")
"""Endings of the columns of memory; the first that a run has is shown."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkerRow:
    """How one worker spent the time of the steps, in shares of 1 by what it did, and the most memory that it took, in
    GiB; None where it is not known."""

    name: str
    host: str
    device: str
    shares: Mapping[str, float]
    memory: float | None


def worker_rows(timings: Sequence[Mapping[str, Any]]) -> list[WorkerRow]:
    """A row for each worker, over the last steps that ran on the same devices; none for a run of a version that did not
    measure this. Steps that begin with the start of a worker, which loads a model, are left out if there are others."""
    lines = [line["workers"] for line in timings if "workers" in line]
    if not lines:
        return []
    last = lines[-1]
    here = [line for line in lines if line["host"] == last["host"] and line["device"] == last["device"]]
    after_start = [line for line in here if not any(line["load_s"])]
    return [_row(number, after_start or here) for number in range(len(last["host"]))]


def devices_words(rows: Sequence[WorkerRow]) -> str:
    """`8 x NVIDIA H200 on first, 8 x NVIDIA H200 on second`; empty for no rows."""
    counts = Counter((row.device, row.host) for row in rows)
    return ", ".join(f"{count} x {device} on {host}" for (device, host), count in counts.items())


def _row(number: int, lines: Sequence[Mapping[str, Any]]) -> WorkerRow:
    total = _sum(lines, "total_s", number)
    return WorkerRow(
        name=f"{number}",
        host=lines[-1]["host"][number],
        device=lines[-1]["device"][number],
        shares={work: sum(_sum(lines, name, number) for name in names) / total for work, names in _WORK.items()},
        memory=_memory(lines, number),
    )


def _sum(lines: Sequence[Mapping[str, Any]], name: str, number: int) -> float:
    return float(sum(line[name][number] for line in lines))


def _memory(lines: Sequence[Mapping[str, Any]], number: int) -> float | None:
    for ending in _PEAKS:
        found = [
            values[number]
            for line in lines
            for name, values in line.items()
            if name.endswith(ending) and values[number] is not None
        ]
        if found:
            return float(max(found))
    return None


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
