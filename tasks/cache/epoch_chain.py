"""The epochs of a training, each with the digest that it has after all those before it."""

from collections.abc import Callable, Sequence
from typing import overload

Link = tuple[str, str]
"""Name and digest of an epoch's stage."""


class EpochChain(Sequence[Link]):
    """Name and digest of every epoch's stage, in order. A digest is computed when it is first asked for: of a run of a
    hundred thousand epochs only those matter that were begun.

    Args:
        length: How many epochs there are.
        first: Digest of the stage before the first epoch.
        link: Name and digest of an epoch, counted from 1, given the digest before it.
    """

    def __init__(self, length: int, *, first: str, link: Callable[[int, str], Link]) -> None:
        self._length = length
        self._first = first
        self._link = link
        self._known: list[Link] = []

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> Link: ...

    @overload
    def __getitem__(self, index: slice) -> list[Link]: ...

    def __getitem__(self, index: int | slice) -> Link | list[Link]:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(self._length))]
        number = range(self._length)[index]
        while len(self._known) <= number:
            before = self._known[-1][1] if self._known else self._first
            self._known.append(self._link(len(self._known) + 1, before))
        return self._known[number]

    def __contains__(self, item: object) -> bool:
        """Whether an epoch has this name and digest; no other epoch than the one of that name is looked at."""
        if not isinstance(item, tuple) or not item:
            return False
        _, _, number = str(item[0]).rpartition("-")
        return number.isdecimal() and 1 <= int(number) <= self._length and self[int(number) - 1] == item
