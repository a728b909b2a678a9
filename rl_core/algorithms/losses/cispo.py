"""CISPO: the clipped ratio is a weight, so that clipped tokens keep a gradient (MiniMax-M1, arXiv 2506.13585)."""

from typing import Literal

from rl_core.algorithms.losses.clipping import ClippedLoss
from rl_core.algorithms.policy_loss import PolicyLoss, ResponseTokens


class CISPOLoss(ClippedLoss):
    """CISPO (arXiv 2506.13585): the clipped ratio is a weight of the log-prob. The paper has only an upper bound
    (`clip_ratio_low: 1`); EasyR1's recipe has low 0, high 4."""

    type: Literal["cispo"] = "cispo"

    def loss(self, tokens: ResponseTokens) -> PolicyLoss:
        """L = -A sg[clip(r, 1 - low, 1 + high)] log pi."""
        log_ratio = tokens.log_ratio.detach()
        low, high = self.log_bounds
        weight = log_ratio.clamp(low, high).exp()
        return PolicyLoss(
            per_token=-tokens.advantages * tokens.log_probs * weight,
            logged={"clip_fraction_high": log_ratio > high, "clip_fraction_low": log_ratio < low},
        )
