"""Two calls at the same time, to workers that wait for each other."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, field
from threading import Event
from typing import Final

from rl_core.workers.process_worker import WorkerDied

_PATIENCE_SECONDS: Final = 15.0
"""How long a call that has failed waits for the other one: if a worker has died there, that is noticed meanwhile."""


@dataclass(kw_only=True, slots=True)
class Side:
    """One of the two calls.

    Attributes:
        call: Makes it.
        end: Ends the workers to which it is made, and with them the call.
        was_ended: Whether it was ended because the other call has failed.
        is_over: Set when the call has returned or failed.
    """

    call: Callable[[], object]
    end: Callable[[], object]
    was_ended: bool = False
    is_over: Event = field(default_factory=Event)


def at_once(one: Side, other: Side, *, patience_seconds: float = _PATIENCE_SECONDS) -> None:
    """Make both calls at the same time. If one fails, the workers of the other, which would wait for it, are ended.

    Raises:
        WorkerDied: a worker has died. The other side may have felt before that its connection broke.
        BaseException: the first error of a call, if no worker has died.
    """
    causes: list[BaseException] = []

    def run(own: Side, beside: Side) -> None:
        try:
            own.call()
        except BaseException as error:  # noqa: BLE001 - raised below, or the end of a side
            if not own.was_ended:
                causes.append(error)
            own.is_over.set()
            if isinstance(error, WorkerDied) or not beside.is_over.wait(patience_seconds):
                beside.was_ended = True
                beside.end()
        else:
            own.is_over.set()

    with ThreadPoolExecutor(1, thread_name_prefix="one-of-two-calls") as thread:
        thread.submit(copy_context().run, run, one, other)
        run(other, one)
    if causes:
        raise next((cause for cause in causes if isinstance(cause, WorkerDied)), causes[0])
