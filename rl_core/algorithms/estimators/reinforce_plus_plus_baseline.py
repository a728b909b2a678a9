"""REINFORCE++ with baseline: rewards less their group's mean, whitened over the rollout batch (arXiv 2501.03262)."""

from typing import Literal

from rl_core.algorithms.advantages import AdvantageInputs, GroupBaseline, Grouped, Rewards, whitened
from rl_core.algorithms.estimators.dr_grpo import less_the_mean


class ReinforcePlusPlusBaseline(GroupBaseline):
    """REINFORCE++ with baseline (arXiv 2501.03262): rewards less their group's mean, whitened over the rollout batch.

    As published the whitening takes the batch's token mean off, so that among other groups one without a signal may
    keep a small common advantage; alone it has exactly none.
    """

    type: Literal["reinforce_plus_plus_baseline"] = "reinforce_plus_plus_baseline"
    """Selects REINFORCE++ with baseline."""

    def of_group(self, rewards: Rewards) -> Rewards:
        """Before the whitening: r_i - mean(r)."""
        return less_the_mean(rewards)

    def advantages(self, inputs: AdvantageInputs) -> Grouped:
        """Those of the groups, whitened."""
        return whitened(super().advantages(inputs))
