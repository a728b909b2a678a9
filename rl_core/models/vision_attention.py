"""Attention of the vision towers: images and windows of equal size in one call, instead of one call for each image."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface

# transformers passes the boundaries of a packed sequence only to implementations with "flash" in their name; for others
# its vision towers loop over the images.
VISION_SDPA = "sdpa_in_flash_form"


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
    lengths = tuple((cu_seq_lens_q[1:] - cu_seq_lens_q[:-1]).tolist())
    if len(set(lengths)) == 1:
        return _attend_equal(states, length=lengths[0], scale=scaling)[None], None
    buckets = _buckets(lengths, query.device)
    outputs = [
        _attend_equal([tensor.index_select(0, tokens) for tensor in states], length=length, scale=scaling)
        for length, tokens in buckets
    ]
    tokens = torch.cat([tokens for _, tokens in buckets])
    return torch.empty_like(states[0]).index_copy(0, tokens, torch.cat(outputs))[None], None


def _attend_equal(states: Sequence[torch.Tensor], *, length: int, scale: float) -> torch.Tensor:
    """Query, key and value [S, H, D] in segments of equal length -> [S, H, D]."""
    query, key, value = (tensor.view(-1, length, *tensor.shape[1:]).transpose(1, 2) for tensor in states)
    return scaled_dot_product_attention(query, key, value, scale=scale).transpose(1, 2).flatten(0, 1)


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
