"""GRPO: the reward normalised by the group's mean and standard deviation (arXiv 2402.03300)."""

from typing import Literal

import numpy as np

from rl_core.algorithms.advantages import STD_FLOOR, GroupBaseline, Rewards, has_no_signal


class GRPO(GroupBaseline):
    """GRPO (arXiv 2402.03300): the reward minus the group's mean, divided by the group's standard deviation."""

    type: Literal["grpo"] = "grpo"

    def of_group(self, rewards: Rewards) -> Rewards:
        """A_i = (r_i - mean(r)) / (std(r) + 1e-6) with the unbiased standard deviation (DeepSeekMath, section 4.1.2),
        [n] -> [n]."""
        if has_no_signal(rewards):
            return np.zeros_like(rewards)
        return np.asarray((rewards - rewards.mean()) / (rewards.std(ddof=1) + STD_FLOOR))
