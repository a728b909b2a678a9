"""The epochs of a training with their digests; the digest of an epoch depends on all epochs before it."""

from collections.abc import Callable, Sequence
from typing import overload

Link = tuple[str, str]
"""Name and digest of an epoch's stage."""


class EpochChain(Sequence[Link]):
    """Name and digest of every epoch's stage, in order. A digest is computed when it is first needed, since of a
    hundred thousand epochs only the epochs that were started matter.

    Args:
        length: Number of epochs.
        first: Digest of the stage before the first epoch.
        link: Returns name and digest of an epoch, given its number, from 1, and the digest before it.
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
        """Whether an epoch has this name and digest; only the epoch of that name is looked at."""
        if not isinstance(item, tuple) or not item:
            return False
        _, _, number = str(item[0]).rpartition("-")
        return number.isdecimal() and 1 <= int(number) <= self._length and self[int(number) - 1] == item
