"""What the advantages relative to the other rollouts of the same prompt have in common.

A group whose rewards are all equal gets exactly zero from each of them: rounding in the mean of, say, eight 0.9 would
otherwise look like a signal, and divided by 1e-6 like a strong one.
"""

import numpy as np

from rl_core.algorithms.advantages import Rewards

STD_FLOOR = 1e-6
"""Added to the standard deviation, as in the published GRPO implementations."""


def has_no_signal(rewards: Rewards) -> bool:
    """Whether all rewards of a group are equal. Raises ValueError for fewer than two, which have no spread."""
    if rewards.size < 2:
        raise ValueError(f"a group baseline needs at least 2 scored rollouts, got {rewards.size}; raise rollout.n")
    return bool(np.all(rewards == rewards[0]))
