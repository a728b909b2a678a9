"""Advantages relative to the other rollouts of the same prompt."""

import numpy as np
import numpy.typing as npt

STD_FLOOR = 1e-6
"""Added to the standard deviation, as in the published GRPO implementations."""


def grpo_advantages(rewards: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """GRPO: each reward's distance from its group's mean, in units of the group's spread.

    A_i = (r_i - mean(r)) / (std(r) + 1e-6) with the unbiased standard deviation (DeepSeekMath, arXiv 2402.03300,
    section 4.1.2). A group whose rewards are all equal gets exactly zero: rounding in the mean of, say, eight 0.9
    would otherwise be divided by 1e-6 and look like a signal.

    Args:
        rewards: [n] float64, `overall` of one group's rollouts, n >= 2.

    Returns:
        [n] float64.

    Raises:
        ValueError: fewer than two rewards, which have no spread.
    """
    if rewards.size < 2:
        raise ValueError(f"a group baseline needs at least 2 scored rollouts, got {rewards.size}; raise rollout.n")
    if np.all(rewards == rewards[0]):
        return np.zeros_like(rewards)
    return np.asarray((rewards - rewards.mean()) / (rewards.std(ddof=1) + STD_FLOOR))
