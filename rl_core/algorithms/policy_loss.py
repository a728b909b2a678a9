"""What a policy loss takes and gives, and PPO's clipped loss, which GRPO, DAPO and GSPO share.

A loss works token by token; `aggregation.token_weights` makes one number of it. Published forms clamp the log-ratio
before exp, so that one wild token cannot overflow; so do these.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch

MAX_LOG_RATIO = 20.0


@dataclass(frozen=True, kw_only=True, slots=True)
class ResponseTokens:
    """The response tokens of a micro-batch, one whole response after the other; K = sum(lengths).

    Attributes:
        log_probs: [K] float, of the policy that is updated; the gradient flows through it.
        old_log_probs: [K] float, of the policy that sampled.
        advantages: [K] float.
        lengths: Tokens of each response.
    """

    log_probs: torch.Tensor
    old_log_probs: torch.Tensor
    advantages: torch.Tensor
    lengths: Sequence[int]

    @property
    def log_ratio(self) -> torch.Tensor:
        """[K] log of how much likelier the policy has made each token."""
        return self.log_probs - self.old_log_probs


@dataclass(frozen=True, kw_only=True, slots=True)
class LossOptions:
    """The numbers of all policy losses; each loss says which it reads.

    Attributes:
        clip_ratio_low: The ratio is clipped below 1 - this; 1 clips nothing from below.
        clip_ratio_high: The ratio is clipped above 1 + this.
        clip_ratio_dual: Bound of the loss for negative advantages, in multiples of |A|.
        tau_positive: SAPO's temperature where the advantage is not negative.
        tau_negative: SAPO's temperature where it is.
    """

    clip_ratio_low: float
    clip_ratio_high: float
    clip_ratio_dual: float
    tau_positive: float
    tau_negative: float

    @property
    def log_bounds(self) -> tuple[float, float]:
        """Between which log-ratios nothing is clipped."""
        low = -math.inf if self.clip_ratio_low == 1.0 else math.log(1.0 - self.clip_ratio_low)
        return low, math.log(1.0 + self.clip_ratio_high)


@dataclass(frozen=True, kw_only=True, slots=True)
class PolicyLoss:
    """The loss of every token, [K], and what is worth logging of each: name -> [K]."""

    per_token: torch.Tensor
    logged: Mapping[str, torch.Tensor]


PolicyLossFunction = Callable[[ResponseTokens, LossOptions], PolicyLoss]


def clipped_policy_loss(tokens: ResponseTokens, options: LossOptions) -> PolicyLoss:
    """PPO's pessimistic bound with separate bounds (DAPO, arXiv 2503.14476, eq. 8) and dual clip (arXiv 1912.09729).

    Reads the three clip ratios.
    """
    return clip_pessimistically(tokens.log_ratio, tokens.advantages, options)


def clip_pessimistically(log_ratio: torch.Tensor, advantages: torch.Tensor, options: LossOptions) -> PolicyLoss:
    """L = max(-A r, -A clip(r, 1 - low, 1 + high)); where A < 0, L = min(L, -A dual).

    The dual bound limits the push away from a token that the policy has already made likely.

    Args:
        log_ratio: [K] float, log r with gradient.
        advantages: [K] float.
        options: The three clip ratios.
    """
    unclipped = -advantages * log_ratio.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()
    clipped = -advantages * log_ratio.clamp(*options.log_bounds).exp()
    pessimistic = torch.maximum(unclipped, clipped)
    dual_bound = -advantages * options.clip_ratio_dual
    negative = advantages < 0
    is_clipped = unclipped < clipped
    return PolicyLoss(
        per_token=torch.where(negative, torch.minimum(pessimistic, dual_bound), pessimistic),
        logged={
            "clip_fraction_high": is_clipped & (advantages > 0),
            "clip_fraction_low": is_clipped & negative,
            "clip_fraction_dual": negative & (pessimistic > dual_bound),
        },
    )
