"""PPO's clipping, which several losses share."""

import math
from typing import TYPE_CHECKING

from pydantic import Field

from rl_core.algorithms.policy_loss import MAX_LOG_RATIO, PolicyLoss, PolicyLossSection

if TYPE_CHECKING:
    import torch


class ClippedLoss(PolicyLossSection):
    """A loss whose ratio r is clipped to [1 - low, 1 + high]."""

    clip_ratio_low: float = Field(default=0.2, ge=0.0, le=1.0)
    """The ratio is clipped below 1 - this; 1 clips nothing from below."""
    clip_ratio_high: float = Field(default=0.3, gt=0.0)
    """The ratio is clipped above 1 + this."""

    @property
    def log_bounds(self) -> tuple[float, float]:
        """The range of log-ratios that are not clipped."""
        low = -math.inf if self.clip_ratio_low == 1.0 else math.log(1.0 - self.clip_ratio_low)
        return low, math.log(1.0 + self.clip_ratio_high)


class PessimisticLoss(ClippedLoss):
    """A loss that takes the worse of the clipped and the unclipped ratio, with a bound for negative advantages."""

    clip_ratio_dual: float | None = Field(default=3.0, gt=1.0)
    """Upper bound of the loss for negative advantages, in multiples of the advantage (dual clip)."""

    def pessimistic(self, log_ratio: "torch.Tensor", advantages: "torch.Tensor") -> PolicyLoss:
        """L = max(-A r, -A clip(r, 1 - low, 1 + high)); where A < 0, L = min(L, -A dual), from log r with gradient and
        A, [K] each. The dual bound (arXiv 1912.09729) limits the loss of tokens with a negative advantage and a large
        ratio."""
        unclipped = -advantages * log_ratio.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()
        clipped = -advantages * log_ratio.clamp(*self.log_bounds).exp()
        worse = unclipped.maximum(clipped)
        negative = advantages < 0
        dual = math.inf if self.clip_ratio_dual is None else self.clip_ratio_dual
        dual_bound = (-advantages * dual).where(negative, math.inf)
        is_clipped = unclipped < clipped
        return PolicyLoss(
            per_token=worse.minimum(dual_bound),
            logged={
                "clip_fraction_high": is_clipped & (advantages > 0),
                "clip_fraction_low": is_clipped & negative,
                "clip_fraction_dual": worse > dual_bound,
            },
        )
