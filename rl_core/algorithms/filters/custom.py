"""A group filter of the user's."""

from typing import Literal

import numpy as np

from rl_core.algorithms.custom import CustomFunction
from rl_core.algorithms.group_filter import GroupFilterSection, GroupScores


class CustomFilter(CustomFunction, GroupFilterSection):
    """A filter of your own: `f(scores: GroupScores, **kwargs) -> bool` says whether a group is learned from
    (rl_core/algorithms/group_filter.py)."""

    type: Literal["custom"] = "custom"
    """Selects a function of your own."""

    @property
    def wants(self) -> str:
        """What the function says."""
        return f"that {self.function} keeps"

    def keeps(self, scores: GroupScores) -> bool:
        """What the function says. Raises ValueError where it raised, or gave neither True nor False."""
        given = self.call(scores)
        if not isinstance(given, bool | np.bool_):
            raise ValueError(f"{self.function} gave {type(given).__name__}, not True or False")
        return bool(given)
