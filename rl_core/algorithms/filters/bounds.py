"""Keeps groups in which a statistic of a reward component lies between two bounds (DAPO's dynamic sampling, arXiv
2503.14476, section 3.2)."""

from collections.abc import Iterator
from typing import Literal

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from rl_core.algorithms.group_filter import GroupFilterSection, GroupScores
from rl_core.problem import Problem

FilterStatistic = Literal["mean", "spread"]


class BoundsFilter(GroupFilterSection):
    """Learns only from groups whose statistic lies between two bounds, and draws more prompts until the batch is full
    (DAPO's dynamic sampling)."""

    type: Literal["bounds"] = "bounds"
    filter_key: str = "overall"
    """The reward component."""
    statistic: FilterStatistic = "mean"
    """The statistic of the component over a group: `mean`, or the standard deviation (`spread`)."""
    filter_low: float = 0.01
    """Groups at or below it are left out."""
    filter_high: float | None = 0.99
    """Groups at or above it are left out; null is no upper bound, for `spread`."""

    @override
    def problems(self) -> Iterator[Problem]:
        if self.filter_high is not None and self.filter_low >= self.filter_high:
            yield Problem(
                "filter_low",
                f"no number is above {self.filter_low} and below filter_high {self.filter_high}",
                "lower it, or raise filter_high",
            )

    @property
    @override
    def component(self) -> str | None:
        return self.filter_key

    @property
    @override
    def wants(self) -> str:
        return f"whose {self.statistic} of {self.filter_key} is above {self.filter_low} and below {self.filter_high}"

    @override
    def keeps(self, scores: GroupScores) -> bool:
        return is_informative(
            scores[self.filter_key], statistic=self.statistic, low=self.filter_low, high=self.filter_high
        )


def is_informative(
    values: npt.NDArray[np.float64], *, statistic: FilterStatistic, low: float, high: float | None
) -> bool:
    """Whether a statistic of a group's values [n] of one component lies strictly between the bounds, for equal values
    exactly their mean and exactly a spread of 0, without rounding errors."""
    mean, spread = (values[0], 0.0) if np.all(values == values[0]) else (values.mean(), values.std())
    number = float(mean if statistic == "mean" else spread)
    return low < number and (high is None or number < high)
