"""Which groups are worth learning from (DAPO's dynamic sampling, arXiv 2503.14476, section 3.2)."""

from typing import Literal

import numpy as np
import numpy.typing as npt

FilterStatistic = Literal["mean", "spread"]


def is_informative(
    values: npt.NDArray[np.float64], *, statistic: FilterStatistic, low: float, high: float | None
) -> bool:
    """Whether a group's statistic lies strictly between the bounds.

    Args:
        values: [n] one reward component of the group's rollouts.
        statistic: `mean`: how often the prompt is solved. `spread`: standard deviation. Of equal values they are that
            value and 0 exactly, where rounding would leave a little.
        low: Groups at or below it are left out.
        high: Groups at or above it are left out; None has no upper bound.
    """
    number = _mean(values) if statistic == "mean" else _spread(values)
    return low < number and (high is None or number < high)


def _mean(values: npt.NDArray[np.float64]) -> float:
    return float(values[0] if _are_equal(values) else values.mean())


def _spread(values: npt.NDArray[np.float64]) -> float:
    return 0.0 if _are_equal(values) else float(values.std())


def _are_equal(values: npt.NDArray[np.float64]) -> bool:
    return bool(np.all(values == values[0]))
