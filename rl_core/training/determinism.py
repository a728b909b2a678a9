"""Deterministic training on a CPU: the same numbers in every run, or an error."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


@contextmanager
def deterministic_on_cpu(device: torch.device) -> Iterator[None]:
    """Inside the block PyTorch uses deterministic algorithms, and an operation that has none raises RuntimeError.

    The setting applies to the whole process and is restored afterwards, because the generator in the same process does
    not need it: its sums do not depend on the order of threads. New memory is not filled with NaN, which PyTorch would
    otherwise do to expose operations that read uninitialised memory.

    On other devices nothing changes: the fast attention kernels of a GPU use atomic additions.
    """
    if device.type != "cpu":
        yield
        return
    memory: Any = torch.utils.deterministic  # type checkers do not see the property of this module
    was_enabled = torch.are_deterministic_algorithms_enabled()
    was_filled = memory.fill_uninitialized_memory
    torch.use_deterministic_algorithms(True)
    memory.fill_uninitialized_memory = False
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(was_enabled)
        memory.fill_uninitialized_memory = was_filled
