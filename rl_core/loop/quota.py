"""The quota of a draw: how many informative groups a batch still needs, and where in the draw it has them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from rl_core.types import Group, RolloutKey, Score

IsInformative = Callable[[Group, Mapping[RolloutKey, Score]], bool]
"""Whether the batch may learn from a group, by the scores of its rollouts."""


@dataclass(slots=True)
class Quota:
    """Informative groups that are still missing. Groups are counted in the order of the loader, whatever the order in
    which they are generated and scored, so that a draw ends after the same group in every run.

    Attributes:
        missing: How many.
        is_informative: Decides whether a group counts.
    """

    missing: int
    is_informative: IsInformative

    @property
    def is_met(self) -> bool:
        """Whether the groups behind the last one that was counted are not needed."""
        return self.missing <= 0

    def count(self, group: Group, scores: Mapping[RolloutKey, Score]) -> None:
        """Take note of the next group of the draw, of which all rollouts are scored."""
        self.missing -= self.is_informative(group, scores)


def every_group() -> Quota:
    """The quota of a draw of which every group is needed."""
    return Quota(missing=1, is_informative=_never)


def _never(_group: Group, _scores: Mapping[RolloutKey, Score]) -> bool:
    return False
