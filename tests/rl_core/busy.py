"""A machine with other work: equal runs must be equal there too."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager


@contextmanager
def busy_cores(number: int = 2) -> Iterator[None]:
    """Processes that compute without a pause, one a core, for the length of the block."""
    with ExitStack() as stack:
        for _ in range(number):
            process = subprocess.Popen([sys.executable, "-S", "-c", "while True: sum(range(100_000))"])
            stack.callback(process.wait)
            stack.callback(process.kill)
        yield
