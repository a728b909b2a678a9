"""GSPO: the importance ratio of a whole response, normalised by its length (arXiv 2507.18071)."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

from typing_extensions import override

from rl_core.algorithms.losses.clipping import PessimisticLoss
from rl_core.algorithms.policy_loss import PolicyLoss, ResponseTokens
from rl_core.problem import Problem

if TYPE_CHECKING:
    import torch


# A response's ratio, normalised by its length, stays close to 1: bounds made for tokens would clip nothing.
_WIDE = 0.05


class ResponseRatioLoss(PessimisticLoss):
    """A loss that clips the ratio of a whole response."""

    @override
    def problems(self) -> Iterator[Problem]:
        if self.clip_ratio_high > _WIDE:
            yield Problem(
                "clip_ratio_high",
                f"{self.clip_ratio_high} clips hardly any ratio of a whole response, because these stay close to 1",
                "set clip_ratio_low to 3.0e-4 and clip_ratio_high to 4.0e-4, as published",
                fatal=False,
            )


class GSPOLoss(ResponseRatioLoss):
    """GSPO (arXiv 2507.18071): PPO's clipping of the ratio of a whole response, which stays close to 1 (published
    bounds: 3e-4 and 4e-4)."""

    type: Literal["gspo"] = "gspo"

    def loss(self, tokens: ResponseTokens) -> PolicyLoss:
        """Each token has the ratio of its response, s = exp(mean log-ratio); the gradient flows through the mean."""
        return self.pessimistic(response_means(tokens.log_ratio, tokens), tokens.advantages)


def response_means(values: "torch.Tensor", tokens: ResponseTokens) -> "torch.Tensor":
    """[K] -> [K]: for every token the mean of `values` over its response."""
    import torch

    lengths = torch.tensor(tokens.lengths, device=values.device)
    return torch.segment_reduce(values, "mean", lengths=lengths).repeat_interleave(lengths)
