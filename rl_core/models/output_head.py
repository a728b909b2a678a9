"""From hidden states to log-probs, one chunk of tokens at a time: the logits of all tokens never exist at once."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import repeat
from typing import Literal

import torch
from torch.utils.checkpoint import checkpoint

from rl_core.models.sequence_parallel import SequenceParallel

# Added to the logits of banned tokens before the division by the temperature, as by vLLM (`logit_bias` of a request).
BANNED_LOGIT_BIAS = -100.0

EntropyMode = Literal["none", "value", "gradient"]


@dataclass(frozen=True, kw_only=True, slots=True)
class HeadRows:
    """K hidden states and the head that computes distributions from them."""

    hidden: torch.Tensor  # [K, width]
    head: Callable[[torch.Tensor], torch.Tensor]  # From hidden states to logits, [K, V]
    logit_bias: torch.Tensor  # [V] float32 added to the logits


@dataclass(frozen=True, kw_only=True, slots=True)
class PolicyOutput:
    """The policy's output for K response tokens, in packing order: [K] float32 each, in nats."""

    log_probs: torch.Tensor
    entropy: torch.Tensor | None  # None if it was not requested
    full_kl: torch.Tensor | None = None  # KL to the reference over the whole vocabulary; None without a reference

    def gathered(self, parallel: SequenceParallel, *, length: int) -> "PolicyOutput":
        """The output for all `length` response tokens, made of the shares of all ranks."""

        def whole(own: torch.Tensor | None) -> torch.Tensor | None:
            return None if own is None else parallel.gathered(own, length=length, share_gradients=False)

        log_probs = parallel.gathered(self.log_probs, length=length, share_gradients=False)
        return PolicyOutput(log_probs=log_probs, entropy=whole(self.entropy), full_kl=whole(self.full_kl))

    def first(self, count: int) -> "PolicyOutput":
        """Of the first `count` tokens."""
        return PolicyOutput(
            log_probs=self.log_probs[:count],
            entropy=None if self.entropy is None else self.entropy[:count],
            full_kl=None if self.full_kl is None else self.full_kl[:count],
        )


def token_log_probs(
    rows: HeadRows,
    *,
    targets: torch.Tensor,
    temperature: float,
    entropy: EntropyMode,
    chunk_tokens: int,
    reference: HeadRows | None = None,
) -> PolicyOutput:
    """Log-probs of `targets` [K] int64 under log_softmax((head(hidden) + logit_bias) / temperature).

    With more than `chunk_tokens` rows, the logits of each chunk are computed again in the backward pass. With the same
    rows of a reference, KL(policy || reference) is returned too, without a gradient to the reference.
    """

    def chunk(
        hidden: torch.Tensor, chunk_targets: torch.Tensor, ref_hidden: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
        scores = _log_softmax(hidden, rows, temperature)
        log_probs = scores.gather(1, chunk_targets[:, None])[:, 0]
        entropies = None if entropy == "none" else _entropy(scores if entropy == "gradient" else scores.detach())
        if reference is None or ref_hidden is None:
            return log_probs, entropies, None
        with torch.no_grad():
            ref_scores = _log_softmax(ref_hidden, reference, temperature)
        return log_probs, entropies, (scores.exp() * (scores - ref_scores)).sum(dim=-1)

    if len(rows.hidden) <= chunk_tokens:
        ref_hidden = None if reference is None else reference.hidden
        log_probs, entropies, full_kl = chunk(rows.hidden, targets, ref_hidden)
        return PolicyOutput(log_probs=log_probs, entropy=entropies, full_kl=full_kl)
    cut = (torch.split(part, chunk_tokens) for part in (rows.hidden, targets))
    ref_cut = repeat(None) if reference is None else torch.split(reference.hidden, chunk_tokens)
    made = [checkpoint(chunk, *parts, use_reentrant=False) for parts in zip(*cut, ref_cut, strict=False)]
    return PolicyOutput(
        log_probs=torch.cat([log_probs for log_probs, _, _ in made]),
        entropy=None if entropy == "none" else torch.cat([entropies for _, entropies, _ in made]),
        full_kl=None if reference is None else torch.cat([full_kl for _, _, full_kl in made]),
    )


def _log_softmax(hidden: torch.Tensor, rows: HeadRows, temperature: float) -> torch.Tensor:
    """[chunk, V] float32."""
    logits = rows.head(hidden).float().add_(rows.logit_bias)
    if temperature != 1.0:
        logits = logits.div_(temperature)  # whose backward pass takes another array of logits
    return torch.log_softmax(logits, dim=-1)


def _entropy(scores: torch.Tensor) -> torch.Tensor:
    exponentials = scores.exp()
    products = exponentials * scores if scores.requires_grad else exponentials.mul_(scores)
    return -products.sum(dim=-1)
