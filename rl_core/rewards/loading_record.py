"""What the scoring processes' attempts to load each function came to."""

from collections import Counter
from collections.abc import Iterable

from rl_core.rewards.messages import PoolOrder

MAX_FAILURES = 3
"""A function that this many processes in a row could not load, and no living one has, is given up. Once is bad luck: a
process was killed from outside."""


class LoadingRecord:
    """Which functions can be loaded. An import that raises an exception is no matter of this: the process lives and
    says it with each sample."""

    def __init__(self, order: PoolOrder) -> None:
        self._order = order
        self._failures: Counter[int] = Counter()
        self._living: Counter[int] = Counter()
        self._was_loaded: set[int] = set()
        self._problems: dict[int, str] = {}
        self._false_starts = 0

    def lanes(self) -> list[int]:
        """What a new process is to load."""
        return [lane for lane in range(len(self._order.specs)) if lane not in self._problems]

    def problem(self, lane: int) -> str | None:
        """Why no process loads it any more."""
        return self._problems.get(lane)

    def started(self) -> None:
        """A process has started."""
        self._false_starts = 0

    def succeeded(self, lane: int) -> None:
        """A process has loaded it."""
        self._was_loaded.add(lane)
        self._living[lane] += 1
        self._failures[lane] = 0

    def gone(self, lanes: Iterable[int]) -> None:
        """A process has ended that had loaded these."""
        self._living.subtract(lanes)

    def took_too_long(self, lane: int) -> None:
        """A process was ended in its import. Where none ever came through, it is given up at once: every try takes as
        long."""
        limit = self._order.load_timeout_seconds
        self._failures[lane] += 1 if lane in self._was_loaded else MAX_FAILURES
        self._give_up(lane, f"its import took longer than reward.load_timeout_seconds = {limit:g}")

    def ended(self, lane: int | None, how: str) -> None:
        """A process ended by itself in the import of `lane`; of None before any import.

        Raises:
            RuntimeError: so many did that before any import.
        """
        if lane is None:
            self._false_starts += 1
            if self._false_starts >= MAX_FAILURES:
                raise RuntimeError(f"the scoring processes do not start: {how}")
            return
        self._failures[lane] += 1
        self._give_up(lane, f"its import ended the process: {how}")

    def _give_up(self, lane: int, reason: str) -> None:
        if self._failures[lane] >= MAX_FAILURES and not self._living[lane]:
            self._problems.setdefault(lane, f"could not load {self._order.specs[lane].name}: {reason}")
