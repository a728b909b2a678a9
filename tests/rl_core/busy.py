"""A machine with other work: equal runs must be equal there too."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch

_WORK = "import os; parent = os.getppid()\nwhile os.getppid() == parent: sum(range(100_000))"
"""Ends with the process that started it, even where that one is killed."""


@contextmanager
def busy_cores(number: int = 2) -> Iterator[None]:
    """Processes that compute without a pause, one a core, for the length of the block."""
    with ExitStack() as stack:
        for _ in range(number):
            process = subprocess.Popen([sys.executable, "-S", "-c", _WORK])
            stack.callback(process.wait)
            stack.callback(process.kill)
        yield


@contextmanager
def threads_of_torch(number: int) -> Iterator[None]:
    """PyTorch computes with this number of threads for the length of the block."""
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)
