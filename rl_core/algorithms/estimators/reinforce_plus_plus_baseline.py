"""REINFORCE++ with baseline: rewards minus the group's mean, whitened over the rollout batch (arXiv 2501.03262)."""

from typing import Literal

from typing_extensions import override

from rl_core.algorithms.advantages import AdvantageInputs, GroupBaseline, Grouped, Rewards, whitened
from rl_core.algorithms.estimators.dr_grpo import centered


class ReinforcePlusPlusBaseline(GroupBaseline):
    """REINFORCE++ with baseline (arXiv 2501.03262): rewards minus the group's mean, whitened over the rollout batch. A
    group with equal rewards may so get a small advantage."""

    type: Literal["reinforce_plus_plus_baseline"] = "reinforce_plus_plus_baseline"

    def of_group(self, rewards: Rewards) -> Rewards:
        """r_i - mean(r), before the whitening."""
        return centered(rewards)

    @override
    def advantages(self, inputs: AdvantageInputs) -> Grouped:
        return whitened(super().advantages(inputs))
