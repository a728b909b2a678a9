"""The critic's clipped regression loss for each token."""

from dataclasses import dataclass

import torch


@dataclass(frozen=True, kw_only=True, slots=True)
class ValueLoss:
    """[K] each: the loss of every token, and whether the clipped value determines it (bool)."""

    per_token: torch.Tensor
    clipped: torch.Tensor


def clipped_value_loss(
    *, values: torch.Tensor, old_values: torch.Tensor, returns: torch.Tensor, cliprange_value: float
) -> ValueLoss:
    """L = max((v - R)^2, (clip(v, old +- range) - R)^2) / 2, pessimistic like PPO's policy loss; [K] each. The gradient
    flows through `values`; the old ones are the critic's before the update."""
    near = torch.clamp(values, old_values - cliprange_value, old_values + cliprange_value)
    unclipped, clipped = (values - returns).square(), (near - returns).square()
    return ValueLoss(per_token=0.5 * torch.maximum(unclipped, clipped), clipped=unclipped < clipped)
