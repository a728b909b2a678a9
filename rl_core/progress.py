"""The interfaces for what long work reports, its progress and incidents, wherever these are shown or written."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

from typing_extensions import override


class Advance(Protocol):
    """Advances a progress bar by `count` units, and shows the newest figures beside it ("reward 0.41")."""

    def __call__(self, count: int = 1, figures: str = "") -> None:
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
        def advance(count: int = 1, figures: str = "") -> None:
            return None

        yield advance

    @override
    @contextmanager
    def wait(self, description: str) -> Iterator[None]:
        yield
