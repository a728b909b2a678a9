"""Training on a CPU gives the same numbers in every run, or an error."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


@contextmanager
def deterministic_on_cpu(device: torch.device) -> Iterator[None]:
    """Inside the block PyTorch takes deterministic algorithms, and an operation that has none raises RuntimeError.

    The setting belongs to the process; it is put back as it was, because the generation engine beside the trainer needs
    none of it: nothing there is summed over threads in an order that varies. New memory is not filled with NaN, which
    PyTorch would add for operations that read what they never wrote.

    On another device nothing changes: the fast attention kernels of a GPU add atomically.
    """
    if device.type != "cpu":
        yield
        return
    memory: Any = torch.utils.deterministic  # a module whose only setting is a property that type checkers do not see
    was_enabled = torch.are_deterministic_algorithms_enabled()
    was_filled = memory.fill_uninitialized_memory
    torch.use_deterministic_algorithms(True)
    memory.fill_uninitialized_memory = False
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(was_enabled)
        memory.fill_uninitialized_memory = was_filled
