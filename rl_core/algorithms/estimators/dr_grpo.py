"""Dr. GRPO: a reward's distance from its group's mean (arXiv 2503.20783)."""

from typing import Literal

import numpy as np

from rl_core.algorithms.advantages import GroupBaseline, Rewards
from rl_core.algorithms.group_advantages import has_no_signal


class DrGRPO(GroupBaseline):
    """Dr. GRPO (arXiv 2503.20783): a reward less its group's mean, so that easy and hard prompts keep their weight."""

    type: Literal["dr_grpo"] = "dr_grpo"
    """Selects Dr. GRPO."""

    def of_group(self, rewards: Rewards) -> Rewards:
        """A_i = r_i - mean(r) (section 3.2). Arguments, result and errors as for GRPO."""
        return less_the_mean(rewards)


def less_the_mean(rewards: Rewards) -> Rewards:
    """Each reward's distance from the mean, [n]. Raises ValueError for fewer than two."""
    if has_no_signal(rewards):
        return np.zeros_like(rewards)
    return np.asarray(rewards - rewards.mean())
