"""How long work tells a person how far it is, without knowing who shows it."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol


class Advance(Protocol):
    """Moves one bar on by `count` units and shows the newest figures beside it ("reward 0.41")."""

    def __call__(self, count: int = 1, figures: str = "") -> None:
        """Move on."""


class Progress(Protocol):
    """Opens bars. The command line draws them with rich, a flow also writes artifacts, tests show nothing."""

    def bar(self, description: str, total: int | None) -> AbstractContextManager[Advance]:
        """A bar that is open for the length of a `with`, which yields an Advance. `total` is None where nobody knows
        how much there is."""

    def wait(self, description: str) -> AbstractContextManager[None]:
        """Shows what is being waited for, for the length of a `with` of which nobody knows how far it is ("start the
        generation engine")."""


class SilentProgress:
    """Shows nothing."""

    @contextmanager
    def bar(self, description: str, total: int | None) -> Iterator[Advance]:
        """Yields an Advance that does nothing."""

        def advance(count: int = 1, figures: str = "") -> None:
            return None

        yield advance

    @contextmanager
    def wait(self, description: str) -> Iterator[None]:
        """Does nothing."""
        yield
