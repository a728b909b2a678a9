"""SAPO: a smooth gate in place of clipping (arXiv 2511.20347)."""

from typing import Literal

from pydantic import Field

from rl_core.algorithms.policy_loss import MAX_LOG_RATIO, PolicyLoss, PolicyLossSection, ResponseTokens


class SAPOLoss(PolicyLossSection):
    """SAPO (arXiv 2511.20347): a smooth gate in place of clipping; its gradient is largest where the ratio is 1."""

    type: Literal["sapo"] = "sapo"
    tau_positive: float = Field(default=1.0, gt=0.0)
    """Temperature for advantages that are not negative."""
    tau_negative: float = Field(default=1.05, gt=0.0)
    """Temperature for negative advantages; with a larger one, their gradient vanishes closer to ratio 1."""

    def loss(self, tokens: ResponseTokens) -> PolicyLoss:
        """L = -A (4 / tau) sigmoid(tau (r - 1)); the gradient is largest at r = 1 and vanishes far from it."""
        import torch

        ratio = tokens.log_ratio.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()
        tau = torch.where(tokens.advantages < 0, self.tau_negative, self.tau_positive)
        gate = 4.0 / tau * torch.sigmoid(tau * (ratio - 1.0))
        return PolicyLoss(per_token=-tokens.advantages * gate, logged={"sapo_gate": gate})
