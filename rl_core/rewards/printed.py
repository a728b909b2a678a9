"""Passes what reward functions print on to the error stream, up to a limit."""

import os
import queue
import threading
import time
from collections.abc import Callable

MOST_BYTES = 64 * 1024
"""Limit for all scoring processes together in each period."""

PERIOD_SECONDS = 60.0

_FLUSH_SECONDS = 2.0

_REMARK = (
    f"\n[reward] the rewards printed more than {MOST_BYTES // 1024} KiB within {PERIOD_SECONDS:g} s; the rest is left "
    "out\n"
).encode()


class Allowance:
    """How much of the output may still be passed on in this period."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began = clock()
        self._left = MOST_BYTES
        self._is_over = False

    def cut(self, printed: bytes) -> bytes:
        """The part that may be passed on. The first part that is cut in a period ends with a remark."""
        if self._clock() - self._began >= PERIOD_SECONDS:
            self._began, self._left, self._is_over = self._clock(), MOST_BYTES, False
        passed = printed[: self._left]
        self._left -= len(passed)
        if len(passed) == len(printed) or self._is_over:
            return passed
        self._is_over = True
        return passed + _REMARK


class Printer:
    """Writes to a file descriptor in a thread of its own, so that nothing waits for a slow reader."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._allowance = Allowance()
        self._parts: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._write, name="reward-prints", daemon=True)
        self._thread.start()

    def take(self, printed: bytes) -> None:
        """Pass on as much as the limit allows."""
        if part := self._allowance.cut(printed):
            self._parts.put(part)

    def close(self) -> None:
        """Wait a moment for what is left to be written."""
        self._parts.put(None)
        self._thread.join(timeout=_FLUSH_SECONDS)

    def _write(self) -> None:
        while (part := self._parts.get()) is not None:
            while part:
                try:
                    part = part[os.write(self._descriptor, part) :]
                except OSError:  # nobody reads the stream any more
                    return
