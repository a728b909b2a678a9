"""PPO's clipped loss, which GRPO and DAPO share."""

from typing import Literal

from rl_core.algorithms.losses.clipping import PessimisticLoss
from rl_core.algorithms.policy_loss import PolicyLoss, ResponseTokens


class PPOLoss(PessimisticLoss):
    """PPO's clipped loss with separate bounds (DAPO, arXiv 2503.14476, eq. 8) and dual clip (arXiv 1912.09729);
    EasyR1's `default`."""

    type: Literal["ppo"] = "ppo"

    def loss(self, tokens: ResponseTokens) -> PolicyLoss:
        """L = max(-A r, -A clip(r, 1 - low, 1 + high)) of every token, with dual clip."""
        return self.pessimistic(tokens.log_ratio, tokens.advantages)
