"""The output head: hidden states to log-probs, a chunk of tokens at a time, so that full logits never exist."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

# What vLLM adds to the logit of a banned token before it divides by the temperature (`logit_bias` of a request).
BANNED_LOGIT_BIAS = -100.0

EntropyMode = Literal["none", "value", "gradient"]


@dataclass(frozen=True, kw_only=True, slots=True)
class PolicyOutput:
    """What the policy says about K response tokens, in packing order.

    Attributes:
        log_probs: [K] float32, with gradient.
        entropy: [K] float32 in nats, with gradient only if that was asked for; None when nothing was.
    """

    log_probs: torch.Tensor
    entropy: torch.Tensor | None


def token_log_probs(
    hidden: torch.Tensor,
    *,
    head: nn.Module,
    logit_bias: torch.Tensor,
    targets: torch.Tensor,
    temperature: float,
    entropy: EntropyMode,
    chunk_tokens: int,
) -> PolicyOutput:
    """Log-probs of `targets` under log_softmax((head(hidden) + logit_bias) / temperature).

    With more than `chunk_tokens` rows, the logits of a chunk are made again in the backward pass.

    Args:
        hidden: [K, width] hidden states that predict the targets.
        head: The model's output embedding.
        logit_bias: [V] float32 added to the logits.
        targets: [K] int64.
        temperature: The sampling temperature, > 0.
        entropy: Also give entropies, as values or with their gradient (for an entropy bonus).
        chunk_tokens: Rows whose logits exist at one time.
    """

    def chunk_log_probs(rows: torch.Tensor, chunk_targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        scores = torch.log_softmax((head(rows).float() + logit_bias).div_(temperature), dim=-1)
        log_probs = scores.gather(1, chunk_targets[:, None])[:, 0]
        if entropy == "none":
            return log_probs, None
        return log_probs, _entropy(scores if entropy == "gradient" else scores.detach())

    if len(hidden) <= chunk_tokens:
        log_probs, entropies = chunk_log_probs(hidden, targets)
        return PolicyOutput(log_probs=log_probs, entropy=entropies)
    chunks = zip(torch.split(hidden, chunk_tokens), torch.split(targets, chunk_tokens), strict=True)
    made = [checkpoint(chunk_log_probs, *chunk, use_reentrant=False) for chunk in chunks]
    return PolicyOutput(
        log_probs=torch.cat([log_probs for log_probs, _ in made]),
        entropy=None if entropy == "none" else torch.cat([entropies for _, entropies in made]),
    )


def _entropy(scores: torch.Tensor) -> torch.Tensor:
    """[rows] from [rows, V] log-probs."""
    return -(scores.exp() * scores).sum(dim=-1)
