"""RLOO: the reward minus the mean reward of the other rollouts (arXiv 2402.14740)."""

from typing import Literal

import numpy as np

from rl_core.algorithms.advantages import GroupBaseline, Rewards, has_no_signal


class RLOO(GroupBaseline):
    """RLOO (arXiv 2402.14740): the reward minus the mean reward of the other rollouts of the group, an unbiased
    baseline."""

    type: Literal["rloo"] = "rloo"

    def of_group(self, rewards: Rewards) -> Rewards:
        """A_i = r_i - mean of the other rewards, [n] -> [n]."""
        if has_no_signal(rewards):
            return np.zeros_like(rewards)
        return np.asarray(rewards - (rewards.sum() - rewards) / (rewards.size - 1))
