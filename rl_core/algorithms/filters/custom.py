"""A user's group filter."""

from typing import Literal

import numpy as np
from typing_extensions import override

from rl_core.algorithms.custom import CustomFunction
from rl_core.algorithms.group_filter import GroupFilterSection, GroupScores


class CustomFilter(CustomFunction, GroupFilterSection):
    """A filter of your own: `f(scores: GroupScores, **kwargs) -> bool` returns whether a group is learned from
    (rl_core/algorithms/group_filter.py)."""

    type: Literal["custom"] = "custom"

    @property
    @override
    def wants(self) -> str:
        return f"that {self.function} keeps"

    def keeps(self, scores: GroupScores) -> bool:
        """The function's result. Raises ValueError if it raised an exception, or did not return True or False."""
        given = self.call(scores)
        if not isinstance(given, bool | np.bool_):
            raise ValueError(f"{self.function} returned {type(given).__name__}, not True or False")
        return bool(given)
