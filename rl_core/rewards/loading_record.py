"""Which reward functions the scoring processes could load so far."""

from collections import Counter
from collections.abc import Iterable

from rl_core.rewards.messages import PoolOrder

MAX_FAILURES = 3
"""A function is given up after so many processes in a row have ended while they imported it, unless a running process
has it loaded. One such end may be an accident: something outside killed the process."""


class LoadingRecord:
    """Keeps account of which functions, by their index, can be loaded.

    An import that raises an exception does not count here: the process survives and reports the exception with each
    sample.
    """

    def __init__(self, order: PoolOrder) -> None:
        self._order = order
        self._failures: Counter[int] = Counter()
        self._living: Counter[int] = Counter()
        self._was_loaded: set[int] = set()
        self._problems: dict[int, str] = {}
        self._false_starts = 0

    def loadable(self) -> list[int]:
        """The functions that a new process should load."""
        return [index for index in range(len(self._order.specs)) if index not in self._problems]

    def problem(self, index: int) -> str | None:
        """Why a function was given up; None if it was not."""
        return self._problems.get(index)

    def started(self) -> None:
        """A process has started."""
        self._false_starts = 0

    def succeeded(self, index: int) -> None:
        """A process has loaded a function."""
        self._was_loaded.add(index)
        self._living[index] += 1
        self._failures[index] = 0

    def gone(self, indices: Iterable[int]) -> None:
        """A process has ended that had loaded these functions."""
        self._living.subtract(indices)

    def took_too_long(self, index: int) -> None:
        """A process was killed because an import took too long. A function that no process has ever loaded is given up
        at once, because every attempt would take as long."""
        limit = self._order.load_timeout_seconds
        self._failures[index] += 1 if index in self._was_loaded else MAX_FAILURES
        self._give_up(index, f"its import took longer than reward.load_timeout_seconds = {limit:g}")

    def ended(self, index: int | None, how: str) -> None:
        """A process ended by itself while it imported function `index`, or before any import (None).

        Raises:
            RuntimeError: MAX_FAILURES processes in a row ended before any import.
        """
        if index is None:
            self._false_starts += 1
            if self._false_starts >= MAX_FAILURES:
                raise RuntimeError(f"the scoring processes do not start: {how}")
            return
        self._failures[index] += 1
        self._give_up(index, f"its import ended the process: {how}")

    def _give_up(self, index: int, reason: str) -> None:
        if self._failures[index] >= MAX_FAILURES and not self._living[index]:
            self._problems.setdefault(index, f"could not load {self._order.specs[index].name}: {reason}")
