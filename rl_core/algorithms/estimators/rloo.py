"""RLOO: a reward less the mean of the others (arXiv 2402.14740)."""

from typing import Literal

import numpy as np

from rl_core.algorithms.advantages import GroupBaseline, Rewards
from rl_core.algorithms.group_advantages import has_no_signal


class RLOO(GroupBaseline):
    """RLOO (arXiv 2402.14740): a reward less the mean of the others of its group, an unbiased baseline."""

    type: Literal["rloo"] = "rloo"
    """Selects RLOO."""

    def of_group(self, rewards: Rewards) -> Rewards:
        """A_i = r_i - mean of the others. Arguments, result and errors as for GRPO."""
        if has_no_signal(rewards):
            return np.zeros_like(rewards)
        return np.asarray(rewards - (rewards.sum() - rewards) / (rewards.size - 1))
