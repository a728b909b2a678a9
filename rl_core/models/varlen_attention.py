"""PyTorch's own kernel for sequences of different lengths, which needs no further package on a GPU.

`torch.nn.attention.varlen` has the kernels of FlashAttention-2, with gradients, for half precision on NVIDIA GPUs from
compute capability 8.0 on. A causal mask is aligned to the bottom right, as flash-attn's is: the last query of a run
attends to the last key.
"""

from typing import Any

import torch
from torch import nn
from torch.nn.attention.varlen import varlen_attn
from torch.nn.functional import pad
from transformers import AttentionInterface

# transformers passes the boundaries of a packed sequence only to implementations with "flash" in their name.
VISION_VARLEN = "varlen_in_flash_form"

_HEAD_SIZE_MULTIPLE = 8  # the kernels load 16 bytes at a time


def attend_varlen(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    *,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_k: torch.Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    softmax_scale: float,
    causal: bool,
) -> torch.Tensor:
    """Attention within runs, with the arguments of `flash_attn.flash_attn_varlen_func`: query [Q, H, D] and key and
    value [K, G, D], bfloat16 or float16 on a GPU, D <= 256 -> [Q, H, D]. Bounds are [runs + 1] int32."""
    size = query.shape[-1]
    missing = -size % _HEAD_SIZE_MULTIPLE
    if missing:  # zeros change no score, and the values' zeros are cut off again
        query, key, value = (pad(states, (0, missing)) for states in (query, key, value))
    out = varlen_attn(
        query,
        key,
        value,
        cu_seq_q=cu_seqlens_q,
        cu_seq_k=cu_seqlens_k,
        max_q=max_seqlen_q,
        max_k=max_seqlen_k,
        scale=softmax_scale,
        window_size=(-1, 0) if causal else (-1, -1),
        enable_gqa=query.shape[1] != key.shape[1],
    )
    assert isinstance(out, torch.Tensor), "no log-sum-exp was asked for"
    return out[..., :size]


def vision_varlen(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: None,
    *,
    scaling: float,
    cu_seq_lens_q: torch.Tensor,
    max_length_q: int,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """Full attention within each segment of a packed sequence of a vision tower, with the signature that transformers
    calls: [1, H, S, D], all segments concatenated -> [1, S, H, D]. `cu_seq_lens_q`: [segments + 1] int32 on the device.
    """
    out = attend_varlen(
        *(states[0].transpose(0, 1) for states in (query, key, value)),
        cu_seqlens_q=cu_seq_lens_q,
        cu_seqlens_k=cu_seq_lens_q,
        max_seqlen_q=max_length_q,
        max_seqlen_k=max_length_q,
        softmax_scale=scaling,
        causal=False,
    )
    return out[None], None


AttentionInterface.register(VISION_VARLEN, vision_varlen)
