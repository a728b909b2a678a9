"""Measures what a worker uses, in its own process."""

import socket
from collections.abc import Callable

import torch

from rl_core.device import cpu_words, device_name
from rl_core.workers.peak_memory import PeakMemory
from rl_core.workers.usage import Usage, WorkerUsage
from rl_core.workers.working_time import WorkingTime


class UsageMeter:
    """Measures a worker's time and memory.

    Attributes:
        time: How long it works, and at what.
        memory: The most memory of each phase.
    """

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
