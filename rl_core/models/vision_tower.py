"""Attention of a vision tower that takes all images in one sequence: to images and windows of equal size in one call,
instead of one call for each image."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface

from rl_core.models.attention_rules import refuse_others

# transformers passes the boundaries of a packed sequence only to implementations with "flash" in their name; for others
# its vision towers loop over the images.
VISION_SDPA = "sdpa_in_flash_form"

AttentionFunction = Callable[..., tuple[torch.Tensor, None]]
Attend = Callable[..., torch.Tensor]
"""`scaled_dot_product_attention`, or a function that computes the same."""


def vision_attention(attend: Attend) -> AttentionFunction:
    """Full attention within each segment of a packed sequence, by `attend`, with the signature that transformers
    calls."""

    def attention(
        module: nn.Module,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attention_mask: None,
        *,
        scaling: float,
        cu_seq_lens_q: torch.Tensor,
        **others: Any,
    ) -> tuple[torch.Tensor, None]:
        """[1, H, S, D], all segments concatenated -> [1, S, H, D]; `cu_seq_lens_q`: [segments + 1] int32."""
        check_vision_arguments(module, attention_mask, others)
        states = [tensor[0].transpose(0, 1) for tensor in (query, key, value)]
        return attend_within(cu_seq_lens_q, states, attend=attend, scale=scaling)[None], None

    return attention


def check_vision_arguments(module: nn.Module, mask: torch.Tensor | None, others: Mapping[str, Any]) -> None:
    """Raise ValueError if a layer of a vision tower asks for more than full attention within its segments."""
    refuse_others(module, {**others, "attention_mask": mask}, known=_OF_SEGMENTS)
    for name in ("dropout", "is_causal"):
        if others.get(name):
            raise ValueError(f"{type(module).__name__} asks for {name}, which attention in a vision tower has not")


_OF_SEGMENTS = ("cu_seq_lens_k", "max_length_q", "max_length_k", "dropout", "is_causal", "tree_layout")
"""Arguments for full attention within segments of equal queries and keys, and those of the language model."""


def attend_within(
    bounds: torch.Tensor, states: Sequence[torch.Tensor], *, attend: Attend, scale: float
) -> torch.Tensor:
    """Full attention within segments with these bounds, [segments + 1] int32, in one call for all segments of the same
    length: query, key and value, each [S, H, D] -> the same."""

    def of_equal_length(length: int, parts: Iterable[torch.Tensor]) -> torch.Tensor:
        query, key, value = (part.view(-1, length, *part.shape[1:]).transpose(1, 2) for part in parts)
        return attend(query, key, value, scale=scale).transpose(1, 2).flatten(0, 1)

    lengths = tuple((bounds[1:] - bounds[:-1]).tolist())
    if len(set(lengths)) == 1:
        return of_equal_length(lengths[0], states)
    buckets = _buckets(lengths, states[0].device)
    outputs = [
        of_equal_length(length, (tensor.index_select(0, tokens) for tensor in states)) for length, tokens in buckets
    ]
    tokens = torch.cat([tokens for _, tokens in buckets])
    return torch.empty_like(states[0]).index_copy(0, tokens, torch.cat(outputs))


@lru_cache(maxsize=8)
def _buckets(lengths: tuple[int, ...], device: torch.device) -> list[tuple[int, torch.Tensor]]:
    """Segment length -> the tokens of all segments of this length. Cached, because every layer needs the same."""
    tokens: dict[int, list[torch.Tensor]] = {}
    start = 0
    for length in lengths:
        tokens.setdefault(length, []).append(torch.arange(start, start + length, device=device))
        start += length
    return [(length, torch.cat(parts)) for length, parts in tokens.items()]


AttentionInterface.register(VISION_SDPA, vision_attention(scaled_dot_product_attention))
