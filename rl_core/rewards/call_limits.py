"""How long a call of a reward function may take, and the message for one that took longer."""

import asyncio
from collections import defaultdict
from dataclasses import dataclass

from rl_core.rewards.calling import SLICE_SECONDS
from rl_core.rewards.messages import PoolOrder

ASYNC_GRACE_SECONDS = 2.0
"""The process of an `async def` function ends each call at its time limit by itself. If it has not done so after this
much more time, one of the calls blocks the others, and the process is killed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CallLimit:
    """The time limit of a task.

    Attributes:
        seconds: The task's process is killed after this time.
        call_seconds: Limit of one call of an `async def` function.
        reason: Message for a call that took longer.
        later: The limit of later calls, if this is the first call of its function in a process; else None.
    """

    seconds: float
    call_seconds: float
    reason: str
    later: "CallLimit | None" = None

    def words(self, seconds: float) -> str:
        """The message for a call that was killed after `seconds`."""
        return self.reason if self.later is None or seconds >= self.seconds else self.later.reason


class CallLimits:
    """The time limits of all functions, by their index, and what was learned from first calls.

    The first call of a function in a process may have to load a model, so it may take `load_timeout_seconds` longer
    than later ones. If a first call ends within the limit of later calls, the function does not need the extra time.
    If a first call does not even end within the longer limit, extra time does not help. In both cases all calls of the
    function get the shorter limit from then on, including those that are running.
    """

    def __init__(self, order: PoolOrder) -> None:
        self._order = order
        self._loads_long: dict[int, bool] = {}
        self._first_calls: dict[int, dict[asyncio.Timeout, float]] = defaultdict(dict)

    def of(self, index: int, *, samples: int, is_first: bool) -> CallLimit:
        """The limit of a task of function `index` with `samples` samples."""
        order, spec = self._order, self._order.specs[index]
        if spec.style == "batch" and samples > 1:
            key, seconds, more = "batch_timeout_seconds", order.batch_timeout_seconds, 0.0
        else:
            key, seconds = "timeout_seconds", order.timeout_seconds
            # A single call has exactly its own limit; in a chunk the last call may begin just before the slice is over.
            more = ASYNC_GRACE_SECONDS if spec.is_async else SLICE_SECONDS if samples > 1 else 0.0
        later = CallLimit(
            seconds=seconds + more, call_seconds=seconds, reason=f"no result within reward.{key} = {seconds:g}"
        )
        if not is_first or self._loads_long.get(index) is False:
            return later
        load = order.load_timeout_seconds
        keys = f"reward.load_timeout_seconds + reward.{key}"
        return CallLimit(
            seconds=later.seconds + load,
            call_seconds=seconds + load,
            reason=f"no result of the first call within {keys} = {seconds + load:g}",
            later=later,
        )

    def watch(self, index: int, limit: CallLimit, timeout: asyncio.Timeout) -> None:
        """A call of function `index` begins under `timeout`."""
        ends = timeout.when()
        if limit.later is not None and ends is not None:
            self._first_calls[index][timeout] = ends - limit.seconds + limit.later.seconds

    def forget(self, index: int, timeout: asyncio.Timeout) -> None:
        """A call ended in a way that tells nothing about how long the function takes."""
        self._first_calls[index].pop(timeout, None)

    def learn(self, index: int, limit: CallLimit, timeout: asyncio.Timeout, *, seconds: float | None) -> None:
        """A call ended after `seconds` in the function, or by its time limit (None)."""
        self.forget(index, timeout)
        if limit.later is None:
            return
        if seconds is not None and seconds > limit.later.seconds:
            self._loads_long[index] = True
        elif not self._loads_long.get(index, False):
            self._loads_long[index] = False
            for other, when in self._first_calls[index].items():
                if not other.expired():
                    other.reschedule(when)
            self._first_calls[index].clear()
