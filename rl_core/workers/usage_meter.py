"""Measures what a worker uses, in its own process: its time, and the most memory of each phase of a step."""

import socket
from collections.abc import Callable
from pathlib import Path
from typing import Final, Literal

import torch

from rl_core.device import cpu_words, device_name
from rl_core.workers.usage import Usage, WorkerUsage
from rl_core.workers.working_time import WorkingTime

MemoryPhase = Literal["generate", "update", "save"]
"""From `wake` to `sleep`; the trainer's time; a save within it."""

_GIB: Final = 1 << 30
_STATUS: Final = Path("/proc/self/status")
_CLEAR: Final = Path("/proc/self/clear_refs")
_FORGET_PEAK: Final = "5"
"""What Linux takes as "begin a new peak of the resident memory" (man 5 proc, clear_refs)."""


class UsageMeter:
    """Measures a worker's time and memory."""

    def __init__(self, device: torch.device, *, unmapped_bytes: Callable[[], int]) -> None:
        """Begin to measure a worker. Takes the arguments of PeakMemory."""
        self.time = WorkingTime()
        self.memory = PeakMemory(device, unmapped_bytes=unmapped_bytes)
        self._device = device

    def take(self) -> Usage:
        """What the worker has used since the last call."""
        worker = WorkerUsage(
            host=socket.gethostname(),
            device=self._device_words(),
            seconds=self.time.take(),
            spans=self.time.take_spans(),
            peaks=self.memory.take(),
        )
        return Usage(workers=[worker])

    def _device_words(self) -> str:
        return cpu_words(torch.get_num_threads()) if self._device.type == "cpu" else device_name(self._device)


class PeakMemory:
    """Measures, phase by phase, the peak of this process's resident memory, and on a GPU of the GPU's memory.

    A change of phase costs some 50 microseconds. Where the system does not let a process begin a new peak (a sandbox, a
    kernel without CONFIG_PROC_PAGE_MONITOR), nothing is measured of the resident memory.
    """

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
        """GiB by name since the last call; the current phase goes on.

        `generate_peak_gib` is the peak of the resident memory of this process. On a GPU, `generate_gpu_gib` is the peak
        of torch's allocator without what a sleeping generator has given back, and `generate_gpu_used_gib` is what all
        processes together had taken from the GPU at the end of the phase, with CUDA's context and the allocator's
        unused blocks. Other phases have the same names.
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
