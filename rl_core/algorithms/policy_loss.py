"""What a policy loss takes and gives.

A loss works token by token; `aggregation.token_weights` makes one number of it. Published forms clamp the log-ratio
before exp, so that one wild token cannot overflow; so do these.

The configuration is made of the losses' sections and loads no torch: the files of the losses import it where they
compute.
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
    """The response tokens of a micro-batch, one whole response after the other; K = sum(lengths).

    Attributes:
        log_probs: [K] float, of the policy that is updated; the gradient flows through it.
        old_log_probs: [K] float, of the policy that sampled.
        advantages: [K] float.
        lengths: Tokens of each response.
    """

    log_probs: "torch.Tensor"
    old_log_probs: "torch.Tensor"
    advantages: "torch.Tensor"
    lengths: Sequence[int]

    @property
    def log_ratio(self) -> "torch.Tensor":
        """[K] log of how much likelier the policy has made each token."""
        return self.log_probs - self.old_log_probs


@dataclass(frozen=True, kw_only=True, slots=True)
class PolicyLoss:
    """What a policy loss gives.

    Attributes:
        per_token: [K] float, the loss of every token, with gradient.
        logged: What is worth logging of each token, name -> [K]; its mean becomes the metric `actor/<name>`.
    """

    per_token: "torch.Tensor"
    logged: Mapping[str, "torch.Tensor"] = field(default_factory=dict)


class PolicyLossSection(AlgorithmSection):
    """A policy loss: its options, and what it computes with them."""

    type: str
    """Selects the loss."""

    @abstractmethod
    def loss(self, tokens: ResponseTokens) -> PolicyLoss:
        """The loss of every token."""
