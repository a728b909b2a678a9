"""How long a call of a user function may take, and which functions the processes could load so far."""

import threading
from collections import Counter
from typing import NamedTuple

from rl_core.isolation.calling import SLICE_SECONDS
from rl_core.isolation.order import Order


class CallLimit(NamedTuple):
    """A task's process is killed after `seconds`; one call of an `async def` function may take `call_seconds`; `reason`
    is the error of a call that took longer."""

    seconds: float
    call_seconds: float
    reason: str


class CallLimits:
    """The time limits of all functions, by their index.

    The first call of a function in a process may have to load a model, so it may take `load_timeout_seconds` longer
    than later ones. If a first call ends within the limit of later calls, or not even within the longer one, extra time
    is of no use: all calls of the function get the shorter limit from then on, including those that are running.
    """

    def __init__(self, order: Order) -> None:
        self._order = order
        self._loads_long: dict[int, bool] = {}

    def of(self, index: int, *, inputs: int, is_first: bool, calls: int = 1) -> CallLimit:
        """The present limit of a task. `is_first`: it has the function's first call in its process; `calls`: an
        input of it is so many calls."""
        later = self._of_later(index, inputs, calls)
        if not is_first or self._loads_long.get(index) is False:
            return later
        seconds, call_seconds = (limit + self._order.load_timeout_seconds for limit in later[:2])
        keys = f"{self._order.section}.load_timeout_seconds + {self._key(index, inputs, calls)}"
        reason = f"no result of the first call within {keys} = {call_seconds:g}"
        return CallLimit(seconds, call_seconds, reason)

    def learn(self, index: int, *, inputs: int, seconds: float | None) -> None:
        """A first call ended after `seconds` in the function, or by its time limit (None)."""
        if seconds is not None and seconds > self._of_later(index, inputs).seconds:
            self._loads_long[index] = True
        else:
            self._loads_long.setdefault(index, False)

    def _of_later(self, index: int, inputs: int, calls: int = 1) -> CallLimit:
        spec = self._order.specs[index]
        if self.is_batch(index, inputs):
            seconds, more = self._order.batch_timeout_seconds, 0.0
        else:
            seconds = calls * self._order.timeout_seconds
            # A single call has exactly its own limit; of several, the last may begin just before the slice is over.
            more = spec.grace_seconds or (SLICE_SECONDS if inputs > 1 else 0.0)
        return CallLimit(seconds + more, seconds, f"no result within {self._key(index, inputs, calls)} = {seconds:g}")

    def _key(self, index: int, inputs: int, calls: int) -> str:
        key = "batch_timeout_seconds" if self.is_batch(index, inputs) else "timeout_seconds"
        return f"{calls} * " * (calls > 1) + f"{self._order.section}.{key}"

    def is_batch(self, index: int, inputs: int) -> bool:
        """Whether so many inputs are one call."""
        return self._order.specs[index].is_batch and inputs > 1


MAX_FAILURES = 3
"""A function is given up after so many processes in a row have ended while they imported it. One such end may be an
accident: something outside killed the process."""


class LoadingRecord:
    """Counts, for each function by its index, the processes that ended while they imported it; None stands for the time
    before any import. Thread-safe."""

    def __init__(self, order: Order) -> None:
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
        why = f"its import took longer than {self._order.section}.load_timeout_seconds = {limit:g}"
        return self._failed(index, why, failures=1 if index in self._was_loaded else MAX_FAILURES)

    def ended(self, index: int | None, how: str) -> str | None:
        """A process ended by itself. Returns why the function is given up, if it is; raises RuntimeError when too many
        processes in a row ended before any import."""
        reason = self._failed(index, f"its import ended the process: {how}", failures=1)
        if index is None and reason is not None:
            raise RuntimeError(f"the processes of the {self._order.kind} functions do not start: {how}")
        return reason

    def _failed(self, index: int | None, why: str, *, failures: int) -> str | None:
        with self._lock:
            self._failures[index] += failures
            if self._failures[index] < MAX_FAILURES:
                return None
        return why if index is None else f"could not load {self._order.specs[index].name}: {why}"
