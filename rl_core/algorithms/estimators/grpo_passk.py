"""Pass@k GRPO: only the best rollout of a group has an advantage (arXiv 2503.19595)."""

from typing import Literal

import numpy as np

from rl_core.algorithms.advantages import STD_FLOOR, GroupBaseline, Rewards, has_no_signal


class PassKGRPO(GroupBaseline):
    """Pass@k GRPO (arXiv 2503.19595): only the best rollout of a group has an advantage, its lead over the second."""

    type: Literal["grpo_passk"] = "grpo_passk"

    def of_group(self, rewards: Rewards) -> Rewards:
        """A_best = (r_best - r_second) / (std(r) + 1e-6) for the first best rollout, 0 for the others, [n] -> [n]."""
        advantages = np.zeros_like(rewards)
        if has_no_signal(rewards):
            return advantages
        second, best = np.partition(rewards, -2)[-2:]
        advantages[rewards.argmax()] = (best - second) / (rewards.std(ddof=1) + STD_FLOOR)
        return advantages
