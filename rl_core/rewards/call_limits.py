"""How long a call may take, and what is said of one that took longer."""

import asyncio
from collections import defaultdict
from dataclasses import dataclass

from rl_core.rewards.calling import SLICE_SECONDS
from rl_core.rewards.messages import PoolOrder

ASYNC_GRACE_SECONDS = 2.0
"""Calls of `async def` functions end their own time in the process. It is killed after this much more: one of them
blocks the others."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CallLimit:
    """The limit of a task.

    Attributes:
        seconds: After so many its process is ended.
        call_seconds: Limit of one call of an `async def` function.
        reason: What is said of a call that took longer.
        later: The same for a call that is not the first one of its function in a process; None for such a call.
    """

    seconds: float
    call_seconds: float
    reason: str
    later: "CallLimit | None" = None

    def words(self, seconds: float) -> str:
        """What is said of a call that was ended after so many seconds."""
        return self.reason if self.later is None or seconds >= self.seconds else self.later.reason


class CallLimits:
    """The limits of every lane, and what was seen of first calls.

    The first call of a function in a process may have a model to load, so it has `load_timeout_seconds` more than later
    ones. A function whose first call ended in the time of later ones shows that it needs no more, and one whose first
    call did not end in all that time gets no more: from then on all its calls have one limit, the running ones too.
    """

    def __init__(self, order: PoolOrder) -> None:
        self._order = order
        self._loads_long: dict[int, bool] = {}
        self._first_calls: dict[int, dict[asyncio.Timeout, float]] = defaultdict(dict)

    def of(self, lane: int, *, samples: int, is_first: bool) -> CallLimit:
        """The limit of a task of so many samples."""
        order, spec = self._order, self._order.specs[lane]
        if spec.style == "batch" and samples > 1:
            key, seconds, more = "batch_timeout_seconds", order.batch_timeout_seconds, 0.0
        else:
            key, seconds = "timeout_seconds", order.timeout_seconds
            # A single call has exactly its own limit; in a chunk the last call may begin just before the slice is over.
            more = ASYNC_GRACE_SECONDS if spec.is_async else SLICE_SECONDS if samples > 1 else 0.0
        later = CallLimit(
            seconds=seconds + more, call_seconds=seconds, reason=f"no result within reward.{key} = {seconds:g}"
        )
        if not is_first or self._loads_long.get(lane) is False:
            return later
        load = order.load_timeout_seconds
        keys = f"reward.load_timeout_seconds + reward.{key}"
        return CallLimit(
            seconds=later.seconds + load,
            call_seconds=seconds + load,
            reason=f"no result of the first call within {keys} = {seconds + load:g}",
            later=later,
        )

    def watch(self, lane: int, limit: CallLimit, timeout: asyncio.Timeout) -> None:
        """A call begins, under `timeout`."""
        ends = timeout.when()
        if limit.later is not None and ends is not None:
            self._first_calls[lane][timeout] = ends - limit.seconds + limit.later.seconds

    def forget(self, lane: int, timeout: asyncio.Timeout) -> None:
        """A call ended in a way that says nothing about its time."""
        self._first_calls[lane].pop(timeout, None)

    def learn(self, lane: int, limit: CallLimit, timeout: asyncio.Timeout, *, seconds: float | None) -> None:
        """A call ended after `seconds` in its function; None when its time was over."""
        self.forget(lane, timeout)
        if limit.later is None:
            return
        if seconds is not None and seconds > limit.later.seconds:
            self._loads_long[lane] = True
        elif not self._loads_long.get(lane, False):
            self._loads_long[lane] = False
            for other, when in self._first_calls[lane].items():
                if not other.expired():
                    other.reschedule(when)
            self._first_calls[lane].clear()
