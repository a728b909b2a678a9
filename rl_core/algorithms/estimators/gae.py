"""GAE with the values of a critic (arXiv 1506.02438)."""

from typing import Literal

from pydantic import Field
from typing_extensions import override

from rl_core.algorithms.advantages import AdvantageInputs, AdvantageSection, Grouped, whitened
from rl_core.algorithms.token_advantages import generalized_advantages


class GAE(AdvantageSection):
    """GAE (arXiv 1506.02438), PPO's estimator with a critic (section `critic`), whitened over the rollout batch."""

    type: Literal["gae"] = "gae"
    gamma: float = Field(default=1.0, ge=0.0, le=1.0)
    """Discount per token."""
    lam: float = Field(default=1.0, ge=0.0, le=1.0)
    """Decay: 0 relies on the critic, 1 on the returns."""

    @property
    @override
    def uses_critic(self) -> bool:
        return True

    def advantages(self, inputs: AdvantageInputs) -> Grouped:
        """GAE, whitened over the rollout batch. Raises ValueError if there are no values."""
        return whitened(self._generalized(inputs))

    def value_targets(self, inputs: AdvantageInputs) -> Grouped:
        """GAE before whitening, plus the critic's values."""
        return [
            [advantages + values for advantages, values in zip(*pair, strict=True)]
            for pair in zip(self._generalized(inputs), inputs.values, strict=True)
        ]

    def _generalized(self, inputs: AdvantageInputs) -> Grouped:
        return [
            [
                generalized_advantages(rewards, values, gamma=self.gamma, lam=self.lam)
                for rewards, values in zip(*pair, strict=True)
            ]
            for pair in zip(inputs.token_rewards, inputs.values, strict=True)
        ]
