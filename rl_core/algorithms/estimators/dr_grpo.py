"""Dr. GRPO: the reward minus the group's mean (arXiv 2503.20783)."""

from typing import Literal

import numpy as np

from rl_core.algorithms.advantages import GroupBaseline, Rewards, has_no_signal


class DrGRPO(GroupBaseline):
    """Dr. GRPO (arXiv 2503.20783): the reward minus the group's mean, without a division by the standard deviation, so
    that easy and hard prompts keep their weight."""

    type: Literal["dr_grpo"] = "dr_grpo"

    def of_group(self, rewards: Rewards) -> Rewards:
        """A_i = r_i - mean(r) (section 3.2), [n] -> [n]."""
        return centered(rewards)


def centered(rewards: Rewards) -> Rewards:
    """[n] -> [n] the rewards minus their mean."""
    if has_no_signal(rewards):
        return np.zeros_like(rewards)
    return np.asarray(rewards - rewards.mean())
