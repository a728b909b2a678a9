"""The interfaces for what long work reports, its progress and incidents, wherever these are shown or written."""

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import copy_context
from dataclasses import astuple, dataclass, replace
from typing import Final, Protocol

from typing_extensions import override

_SECONDS_BETWEEN_LOOKS: Final = 1.0


@dataclass(slots=True)
class Tally:
    """What was computed so far: the `responses` that are finished, the tokens that generators have `sampled`, those of
    them that are `under_way` in unfinished responses, the response tokens that trainers have `passed` through a model,
    and the seconds in which responses have `waited` for tools. Who computes only adds to it; it is read when something
    is drawn or written to the timings, and no result depends on it."""

    responses: int = 0
    sampled: int = 0
    under_way: int = 0
    passed: int = 0
    waited: float = 0.0

    def copy(self) -> "Tally":
        """As it is now."""
        return replace(self)

    def since(self, before: "Tally") -> "Tally":
        """What was computed since it was like `before`."""
        return Tally(*(now - then for now, then in zip(astuple(self), astuple(before), strict=True)))

    def add(self, more: "Tally") -> None:
        """Count what was computed elsewhere."""
        self.responses += more.responses
        self.sampled += more.sampled
        self.under_way += more.under_way
        self.passed += more.passed
        self.waited += more.waited


TALLY: Final = Tally()
"""The tally of this process. That of a run includes what its workers report from theirs."""


@dataclass(frozen=True, slots=True)
class Now:
    """What is being done after the last finished unit of a bar, in words, and as which part of its units it counts."""

    words: str = ""
    units: float = 0.0


@dataclass(slots=True)
class Reached:
    """Where a bar is: what is `done`, the newest figures, and what is being done now."""

    done: int = 0
    figures: str = ""
    now: Now = Now()

    def advance(self, count: int, figures: str, now: Now | None) -> None:
        """As `Advance`. One thread may count while another one says what is being done, without a count."""
        if count:
            self.done += count
        self.figures = figures or self.figures
        self.now = now or Now(self.now.words, max(0.0, self.now.units - count))

    @property
    def units(self) -> float:
        """With the part of the units that is being done now."""
        return self.done + self.now.units


class Advance(Protocol):
    """Advances a progress bar by `count` units, and shows the newest figures beside it ("reward 0.41") and what is
    being done now."""

    def __call__(self, count: int = 1, figures: str = "", now: Now | None = None) -> None:
        """Advance the bar."""


class Progress(Protocol):
    """Opens progress bars. The command line draws them with rich, a flow also writes artifacts, tests show nothing."""

    def bar(self, description: str, total: int | None) -> AbstractContextManager[Advance]:
        """A bar that is open during the `with` block and yields an Advance. `total` is None if it is unknown."""

    def wait(self, description: str) -> AbstractContextManager[None]:
        """Shows during the `with` block what the run is waiting for, where progress cannot be measured."""


class LogEvent(Protocol):
    """Records an incident of the run."""

    def __call__(self, kind: str, **facts: object) -> None:
        """Record an incident of a kind ("checkpoint-damaged") with facts, which are JSON values."""


class SilentProgress(Progress):
    """Shows nothing."""

    @override
    @contextmanager
    def bar(self, description: str, total: int | None) -> Iterator[Advance]:
        def advance(count: int = 1, figures: str = "", now: Now | None = None) -> None:
            return None

        yield advance

    @override
    @contextmanager
    def wait(self, description: str) -> Iterator[None]:
        yield


@contextmanager
def showing(advance: Advance, look: Callable[[], Now]) -> Iterator[None]:
    """Inside the block, a bar shows what `look` finds, every second, by a thread of its own: what is done in between
    need not know of it."""
    is_over = threading.Event()

    def show() -> None:
        while not is_over.wait(_SECONDS_BETWEEN_LOOKS):
            advance(0, now=look())

    # In the caller's context, so that what is shown belongs to the same flow run.
    thread = threading.Thread(target=copy_context().run, args=(show,), name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
