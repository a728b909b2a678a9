"""REINFORCE++: discounted returns, whitened over the rollout batch (arXiv 2501.03262)."""

from typing import Literal

from pydantic import Field

from rl_core.algorithms.advantages import AdvantageInputs, AdvantageSection, Grouped, whitened
from rl_core.algorithms.token_advantages import discounted_returns


class ReinforcePlusPlus(AdvantageSection):
    """REINFORCE++ (arXiv 2501.03262): discounted returns, whitened over the rollout batch. It has no group baseline, so
    rollout.n may be 1."""

    type: Literal["reinforce_plus_plus"] = "reinforce_plus_plus"
    gamma: float = Field(default=1.0, ge=0.0, le=1.0)
    """Discount per token."""

    def advantages(self, inputs: AdvantageInputs) -> Grouped:
        """G_t = r_t + gamma G_{t+1}, whitened."""
        returns = [[discounted_returns(r, gamma=self.gamma) for r in group] for group in inputs.token_rewards]
        return whitened(returns)
