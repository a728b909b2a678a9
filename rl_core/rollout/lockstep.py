"""A generation in which the ranks of a generator take every engine step together, or none of them does."""

from collections.abc import Iterator
from contextlib import contextmanager

from rl_core.distributed.ranks import GeneratorRanks


class Lockstep:
    """One generation, as a rank of the generator sees it.

    An engine step is one computation of all ranks, so each would wait for ever for a rank that has left. Therefore all
    of them say before every step whether they go on, and a rank that leaves early says once more that it does not.
    """

    def __init__(self, ranks: GeneratorRanks) -> None:
        self._ranks = ranks
        self._is_left = False

    def goes_on(self, *, wanted: bool) -> bool:
        """Whether the ranks take another step: if all want it. Otherwise the generation has ended."""
        self._is_left = not self._ranks.all_say(wanted)
        return not self._is_left

    @contextmanager
    def step(self) -> Iterator[None]:
        """Around an engine step. If it fails, the others may be in the middle of it, and cannot be asked to end."""
        try:
            yield
        except BaseException:
            self._is_left = True
            raise

    def leave(self) -> None:
        """Leave the generation. Where it has not ended yet, the other ranks end it before their next step."""
        if not self._is_left:
            self.goes_on(wanted=False)
