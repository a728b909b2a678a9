"""The interface of policy losses.

A loss gives one value for each token, and `aggregation.token_weights` weighs them for the sum. As in the published
implementations, the log-ratio is clamped before exp, so that a single extreme token cannot overflow.

The sections of the losses are part of the configuration, which does not load torch. The files of the losses therefore
import torch inside their methods.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rl_core.algorithms.section import AlgorithmSection

if TYPE_CHECKING:
    import torch

MAX_LOG_RATIO = 20.0


@dataclass(frozen=True, kw_only=True, slots=True)
class ResponseTokens:
    """The response tokens of a micro-batch, one whole response after the other; K = sum(lengths)."""

    log_probs: "torch.Tensor"  # [K] float, under the policy that is updated; the gradient flows through it
    old_log_probs: "torch.Tensor"  # [K] float, under the policy that sampled
    advantages: "torch.Tensor"  # [K] float
    lengths: Sequence[int]  # Number of tokens of each response

    @property
    def log_ratio(self) -> "torch.Tensor":
        """[K] log of the probability ratio between the policy and the old policy."""
        return self.log_probs - self.old_log_probs


@dataclass(frozen=True, kw_only=True, slots=True)
class PolicyLoss:
    """The result of a policy loss."""

    per_token: "torch.Tensor"  # [K] float, the loss of every token, with gradient
    # Values to log for each token, name -> [K]; the mean becomes the metric `actor/<name>`, or `actor/loss/<name>` if
    # the former is another metric
    logged: Mapping[str, "torch.Tensor"] = field(default_factory=dict)


class PolicyLossSection(AlgorithmSection):
    """A policy loss: its options and its formula."""

    type: str

    @abstractmethod
    def loss(self, tokens: ResponseTokens) -> PolicyLoss:
        """The loss of every token."""
