"""Attention of the vision towers: images and windows of equal size in one call, instead of one call for each image."""

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface

# transformers passes the boundaries of a packed sequence only to implementations with "flash" in their name; for others
# its vision towers loop over the images.
VISION_SDPA = "sdpa_in_flash_form"

_LONGEST = 64
"""Patches of a segment up to which `_products` is faster on two cores. With 144, a single image takes longer."""


def vision_sdpa(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: None,
    *,
    scaling: float,
    cu_seq_lens_q: torch.Tensor,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """Full attention within each segment of a packed sequence, with PyTorch's scaled dot product.

    Args:
        module: The calling layer (transformers' signature).
        query: [1, H, S, D], all segments concatenated.
        key: [1, H, S, D].
        value: [1, H, S, D].
        attention_mask: Unused; segments have no mask.
        scaling: Multiplies the scores.
        cu_seq_lens_q: [segments + 1] int32 bounds of the segments.

    Returns:
        [1, S, H, D], and None in place of the attention weights.
    """
    states = [tensor[0].transpose(0, 1) for tensor in (query, key, value)]
    return attend_within(cu_seq_lens_q, states, attend=_attend, scale=scaling)[None], None


def attend_within(
    bounds: torch.Tensor, states: Sequence[torch.Tensor], *, attend: Callable[..., torch.Tensor], scale: float
) -> torch.Tensor:
    """Full attention within each segment, with one call for all segments of the same length.

    Args:
        bounds: [segments + 1] int32 where each segment begins and ends.
        states: Query, key and value, each [S, H, D].
        attend: `scaled_dot_product_attention`, or a function that computes the same.
        scale: Multiplies the scores.

    Returns:
        [S, H, D].
    """

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


def _attend(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *, scale: float) -> torch.Tensor:
    """[N, H, S, D] -> [N, H, S, D] in the faster way."""
    attend = _products if query.device.type == "cpu" and query.shape[2] <= _LONGEST else scaled_dot_product_attention
    return attend(query, key, value, scale=scale)


def _products(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *, scale: float) -> torch.Tensor:
    """[N, H, S, D] -> [N, H, S, D] by two products of all heads' matrices at once, in float32 at least.

    As for short trees (rl_core.models.short_tree_attention), the kernel of `scaled_dot_product_attention` takes longer.
    """
    precision = torch.promote_types(query.dtype, torch.float32)
    queries, keys, values = (states.to(precision).flatten(0, 1) for states in (query, key, value))
    out = torch.bmm(torch.bmm(queries * scale, keys.mT).softmax(-1), values)
    return out.view(query.shape).to(query.dtype)


@lru_cache(maxsize=8)
def _buckets(lengths: tuple[int, ...], device: torch.device) -> list[tuple[int, torch.Tensor]]:
    """Segment length -> the tokens of all segments of this length. Cached, because every layer needs the same.

    The generator, which calls this in inference mode, shares the cache with the trainer, which needs ordinary tensors.
    """
    tokens: dict[int, list[torch.Tensor]] = {}
    start = 0
    with torch.inference_mode(False):
        for length in lengths:
            tokens.setdefault(length, []).append(torch.arange(start, start + length, device=device))
            start += length
        return [(length, torch.cat(parts)) for length, parts in tokens.items()]


AttentionInterface.register(VISION_SDPA, vision_sdpa)
