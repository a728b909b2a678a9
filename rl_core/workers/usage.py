"""What a worker uses in a step, measured in its own process: its time, and the most memory of each phase; and what the
workers of a run have used together."""

import socket
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, TypeVar, get_args

import torch

from rl_core.device import cpu_words, device_name
from rl_core.timing import PhaseTimer

Work = Literal["sync", "generate", "update", "save", "load"]
"""Waking the generator and giving it the weights; generating; all passes of the trainer; saving; loading."""

WORK: Final[tuple[Work, ...]] = get_args(Work)

Span = tuple[Work, float, float]
"""What a worker did, and from when to when, in Unix seconds."""

Columns = Mapping[str, Sequence[float | str | None]]
"""[name] -> [worker] -> value; None where a worker has none."""

Spans = Sequence[Sequence[Span]]
"""[worker] -> its spans, in the order of time."""

MemoryPhase = Literal["generate", "update", "save"]
"""From `wake` to `sleep`; the trainer's time; a save within it."""

_GIB: Final = 1 << 30
_STATUS: Final = Path("/proc/self/status")
_CLEAR: Final = Path("/proc/self/clear_refs")
_FORGET_PEAK: Final = "5"
"""What Linux takes as "begin a new peak of the resident memory" (man 5 proc, clear_refs)."""


Value = TypeVar("Value")

_ONE_SPAN_SECONDS: Final = 0.02
"""Rollouts that come one after the other are one span."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkerUsage:
    """What one worker has used since it was last asked. `device` is "CPU with 2
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


class UsageMeter:
    """Measures a worker's time and memory."""

    def __init__(self, device: torch.device, *, unmapped_bytes: Callable[[], int]) -> None:
        self.time = WorkingTime()
        self.memory = PeakMemory(device, unmapped_bytes=unmapped_bytes)
        self._device = device

    def take(self) -> Usage:
        """What the worker has used since the last call."""
        on_cpu = self._device.type == "cpu"
        worker = WorkerUsage(
            host=socket.gethostname(),
            device=cpu_words(torch.get_num_threads()) if on_cpu else device_name(self._device),
            seconds=self.time.take(),
            spans=self.time.take_spans(),
            peaks=self.memory.take(),
        )
        return Usage(workers=[worker])


class WorkingTime:
    """Measures for how long a worker works. Waiting for other ranks within a pass of the trainer counts as work; on a
    CPU such a rank has fewer processor seconds than the others."""

    def __init__(self) -> None:
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
        """Seconds since the last call: `generate_s` and so on for each kind of work, `idle_s` for the rest, `total_s`,
        and `processor_s` of all threads of this process."""
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
        if self._spans:
            last_work, last_begin, last_end = self._spans[-1]
            if last_work == work and begin - last_end < _ONE_SPAN_SECONDS:
                self._spans[-1] = (work, last_begin, end)
                return
        self._spans.append((work, begin, end))


class PeakMemory:
    """Measures, phase by phase, the peak of this process's resident memory, and on a GPU of the GPU's memory. Where the
    system does not let a process begin a new peak (a sandbox, a kernel without CONFIG_PROC_PAGE_MONITOR), nothing is
    measured of the resident memory."""

    def __init__(self, device: torch.device, *, unmapped_bytes: Callable[[], int]) -> None:
        """Begin in the phase "update", because a worker loads its trainer first. `unmapped_bytes` is what torch's
        allocator counts and a sleeping generator has given back."""
        self._unmapped_bytes = unmapped_bytes
        self._on_gpu = device.type == "cuda"
        self._knows_peaks = _can_forget_peak()
        self._phase: MemoryPhase = "update"
        self._peaks: dict[str, float] = {}
        self._forget()

    def enter(self, phase: MemoryPhase) -> None:
        """End the current phase, and begin another one."""
        self._note()
        self._phase = phase
        self._forget()

    def take(self) -> dict[str, float]:
        """GiB by name since the last call, here of the phase "generate"; the current phase goes on.

        `generate_peak_gib`: Peak of the resident memory of this process. On a GPU, `generate_gpu_gib`: Peak of torch's
        allocator without what a sleeping generator has given back. `generate_gpu_used_gib`: What all processes together
        had taken from the GPU at the end of the phase, with CUDA's context and the allocator's unused blocks.
        """
        self._note()
        self._forget()
        peaks, self._peaks = self._peaks, {}
        return peaks

    def _note(self) -> None:
        found = {f"{self._phase}_peak_gib": _resident_peak() / _GIB} if self._knows_peaks else {}
        if self._on_gpu:
            free, total = torch.cuda.mem_get_info()
            found[f"{self._phase}_gpu_gib"] = (torch.cuda.max_memory_allocated() - self._unmapped_bytes()) / _GIB
            found[f"{self._phase}_gpu_used_gib"] = (total - free) / _GIB
        for name, value in found.items():
            self._peaks[name] = max(value, self._peaks.get(name, 0.0))

    def _forget(self) -> None:
        if self._knows_peaks:
            _CLEAR.write_text(_FORGET_PEAK)
        if self._on_gpu:
            torch.cuda.reset_peak_memory_stats()


def _can_forget_peak() -> bool:
    try:
        _CLEAR.write_text(_FORGET_PEAK)
    except OSError:
        return False
    return True


def _resident_peak() -> int:
    """Bytes: the line `VmHWM: 123 kB`."""
    line = next(line for line in _STATUS.read_text().splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024


def _rounded(values: Mapping[str, float]) -> dict[str, float]:
    return {name: round(value, 4) for name, value in values.items()}


def _largest(found: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The largest value of each name; a name that a worker does not have counts for the others alone."""
    names = dict.fromkeys(name for values in found for name in values)
    return {name: max(values[name] for values in found if name in values) for name in names}
