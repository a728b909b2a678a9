"""Which reward functions the scoring processes could load so far."""

import threading
from collections import Counter

from rl_core.rewards.messages import PoolOrder

MAX_FAILURES = 3
"""A function is given up after so many processes in a row have ended while they imported it. One such end may be an
accident: something outside killed the process."""


class LoadingRecord:
    """Counts, for each function by its index, the processes that ended while they imported it; None stands for the time
    before any import. An import that raises an exception does not count: the process survives, and reports the
    exception with each sample. Thread-safe.
    """

    def __init__(self, order: PoolOrder) -> None:
        self._order = order
        self._lock = threading.Lock()
        self._failures: Counter[int | None] = Counter()
        self._was_loaded: set[int | None] = set()

    def succeeded(self, index: int | None) -> None:
        """A process has loaded a function, or has started (None)."""
        with self._lock:
            self._was_loaded.add(index)
            self._failures[index] = 0

    def took_too_long(self, index: int) -> str | None:
        """An import took too long. Returns why the function is given up, if it is: a function that no process has ever
        loaded is given up at once, because every attempt would take as long."""
        limit = self._order.load_timeout_seconds
        why = f"its import took longer than reward.load_timeout_seconds = {limit:g}"
        return self._failed(index, why, failures=1 if index in self._was_loaded else MAX_FAILURES)

    def ended(self, index: int | None, how: str) -> str | None:
        """A process ended by itself. Returns why the function is given up, if it is.

        Raises:
            RuntimeError: too many processes in a row ended before any import.
        """
        reason = self._failed(index, f"its import ended the process: {how}", failures=1)
        if index is None and reason is not None:
            raise RuntimeError(f"the scoring processes do not start: {how}")
        return reason

    def _failed(self, index: int | None, why: str, *, failures: int) -> str | None:
        with self._lock:
            self._failures[index] += failures
            if self._failures[index] < MAX_FAILURES:
                return None
        return why if index is None else f"could not load {self._order.specs[index].name}: {why}"
