"""The arithmetic of training: deterministic on a CPU, and float32 without TF32 on a GPU."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


def use_full_float32() -> None:
    """Multiply float32 matrices on a GPU in float32. TF32, which rounds the factors to 11 bits, would move log-probs by
    about 1e-3, ten times the bound between trainer and generator. The settings apply to the whole process; vLLM gives
    the first the same value."""
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = False


@contextmanager
def deterministic_on_cpu(device: torch.device) -> Iterator[None]:
    """Inside the block PyTorch uses deterministic algorithms on a CPU, and an operation that has none raises
    RuntimeError; the fast attention kernels of a GPU use atomic additions. The generator does not need it: its sums do
    not depend on the order of threads. New memory is not filled with NaN, which would take time."""
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
