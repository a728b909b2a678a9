"""Gives the memory of freed tensors back to the system, on a CPU."""

import ctypes
from typing import Final

import psutil

from rl_core.device import computing_device
from rl_core.planning.memory_rows import KEPT_BYTES


class FreedMemory:
    """What this process has freed, and glibc keeps.

    glibc keeps freed blocks of less than 32 MiB (M_MMAP_THRESHOLD_MAX), and fills their gaps badly with tensors of
    other sizes, before 2.38 not even with aligned ones of the same size. A process whose micro-batches differ in length
    would therefore grow with every step. That malloc gives every large block back by itself (a fixed
    M_MMAP_THRESHOLD) costs more: its pages must be cleared for each tensor again.
    """

    def __init__(self) -> None:
        self._resident = _resident_bytes()

    def give_back(self) -> None:
        """Do so where the process has grown by more than KEPT_BYTES since the last time. Does nothing on a GPU, whose
        memory has an allocator of its own."""
        if computing_device().type != "cpu":
            return
        resident = _resident_bytes()
        self._resident = min(self._resident, resident)  # a cold start's optimizer goes at its end
        if resident - self._resident > KEPT_BYTES:
            ctypes.CDLL(None).malloc_trim(0)
            self._resident = _resident_bytes()


def _resident_bytes() -> int:
    return int(psutil.Process().memory_info().rss)


FREED: Final = FreedMemory()
"""That of this process."""
