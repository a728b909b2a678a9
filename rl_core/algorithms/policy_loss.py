"""The clipped policy loss, token by token."""

import math
from dataclasses import dataclass

import torch

MAX_LOG_RATIO = 20.0
"""The log-ratio is clamped to this before exp, so that one wild token cannot overflow."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PolicyLoss:
    """[K] each: the loss of every token, and where its ratio was clipped from above or from below (bool)."""

    per_token: torch.Tensor
    clipped_high: torch.Tensor
    clipped_low: torch.Tensor


def clipped_policy_loss(
    *,
    log_probs: torch.Tensor,
    old_log_probs: torch.Tensor,
    advantages: torch.Tensor,
    clip_ratio_low: float,
    clip_ratio_high: float,
    clip_ratio_dual: float,
) -> PolicyLoss:
    """PPO's pessimistic bound with separate bounds (DAPO, arXiv 2503.14476, eq. 8) and dual clip (arXiv 1912.09729).

    L = max(-A r, -A clip(r, 1 - low, 1 + high)); where A < 0, L = min(L, -A dual), which bounds the push away from a
    token that the policy has already made likely.

    Args:
        log_probs: [K] float, of the policy that is updated; the gradient flows through it.
        old_log_probs: [K] float, of the policy that sampled.
        advantages: [K] float.
        clip_ratio_low: Lower bound is 1 - this.
        clip_ratio_high: Upper bound is 1 + this.
        clip_ratio_dual: Bound for negative advantages, in multiples of |A|.
    """
    log_ratio = (log_probs - old_log_probs).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    clipped_log_ratio = log_ratio.clamp(math.log(1.0 - clip_ratio_low), math.log(1.0 + clip_ratio_high))
    unclipped = -advantages * log_ratio.exp()
    clipped = -advantages * clipped_log_ratio.exp()
    pessimistic = torch.maximum(unclipped, clipped)
    dual_bound = -advantages * clip_ratio_dual
    negative = advantages < 0
    per_token = torch.where(negative, torch.minimum(pessimistic, dual_bound), pessimistic)
    is_clipped = unclipped < clipped
    return PolicyLoss(
        per_token=per_token,
        clipped_high=is_clipped & (advantages > 0),
        clipped_low=is_clipped & negative,
    )
