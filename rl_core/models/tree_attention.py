"""Attention over packed trees: a prompt token sees its prompt's past, a response token its prompt and its own past.

The sequence has no mask of T x T. Prompts and responses are attended to in two calls; the keys of a response are [its
prompt, its own tokens], gathered, so that the gradients of all responses add up in the prompt they share. (Two calls on
the two parts of the keys, merged by their log-sum-exp, would be cheaper and give wrong gradients: the log-sum-exp of
the kernels carries none.)

Letters: T packed tokens, H query heads, G key/value heads (H a multiple of G), D head size.
"""

from collections.abc import Callable

import torch
from torch.nn.functional import scaled_dot_product_attention

from rl_core.models.tree_layout import TreeLayout

VarlenAttention = Callable[..., torch.Tensor]


def tree_sdpa(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *, layout: TreeLayout, scale: float
) -> torch.Tensor:
    """Tree attention by PyTorch's scaled dot product on padded prompts and padded responses.

    Args:
        query: [T, H, D].
        key: [T, G, D].
        value: [T, G, D].
        layout: The packed trees.
        scale: Multiplies the scores.

    Returns:
        [T, H, D].
    """
    index = layout.padded
    prompts, responses, keys = index.prompt_tokens, index.response_tokens, index.key_tokens
    # Padding stands behind the tokens of a prompt, where causality hides it.
    outputs = [_attend(query[prompts], key[prompts], value[prompts], scale=scale, mask=None)]
    if len(responses):
        outputs.append(_attend(query[responses], key[keys], value[keys], scale=scale, mask=index.response_mask))
    return torch.cat(outputs)[index.token_slot]


def _attend(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *, scale: float, mask: torch.Tensor | None
) -> torch.Tensor:
    """[N, Q, H, D], twice [N, K, G, D] -> [N * Q, H, D]; causal without a mask."""
    if _needs_every_head(query, mask):
        key, value = (part.repeat_interleave(query.shape[2] // key.shape[2], dim=2) for part in (key, value))
    out = scaled_dot_product_attention(
        query.transpose(1, 2),
        key.transpose(1, 2),
        value.transpose(1, 2),
        attn_mask=mask,
        is_causal=mask is None,
        scale=scale,
        enable_gqa=query.shape[2] != key.shape[2],
    )
    return out.transpose(1, 2).flatten(0, 1)


def _needs_every_head(query: torch.Tensor, mask: torch.Tensor | None) -> bool:
    """On CUDA the only kernel that takes a mask and fewer key than query heads keeps every score, in float32."""
    return query.is_cuda and mask is not None


def tree_varlen(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    *,
    layout: TreeLayout,
    scale: float,
    attend: VarlenAttention,
) -> torch.Tensor:
    """Tree attention by a kernel for sequences of varying length, without padding.

    Args:
        query: [T, H, D].
        key: [T, G, D].
        value: [T, G, D].
        layout: The packed trees.
        scale: Multiplies the scores.
        attend: `flash_attn.flash_attn_varlen_func`, or a function that takes the same arguments; causal masks are
            aligned to the bottom right, so that a query sees all keys up to its own.

    Returns:
        [T, H, D].
    """
    index = layout.ragged
    (_, prompt_width), (_, response_width) = layout.prompt_shape, layout.response_shape

    def attend_runs(
        queries: torch.Tensor,
        keys: torch.Tensor,
        *,
        query_bounds: torch.Tensor,
        key_bounds: torch.Tensor,
        query_width: int,
        key_width: int,
    ) -> torch.Tensor:
        return attend(
            query[queries],
            key[keys],
            value[keys],
            cu_seqlens_q=query_bounds,
            cu_seqlens_k=key_bounds,
            max_seqlen_q=query_width,
            max_seqlen_k=key_width,
            softmax_scale=scale,
            causal=True,
        )

    outputs = [
        attend_runs(
            index.prompt_tokens,
            index.prompt_tokens,
            query_bounds=index.prompt_bounds,
            key_bounds=index.prompt_bounds,
            query_width=prompt_width,
            key_width=prompt_width,
        )
    ]
    if len(index.response_tokens):
        outputs.append(
            attend_runs(
                index.response_tokens,
                index.key_tokens,
                query_bounds=index.response_bounds,
                key_bounds=index.key_bounds,
                query_width=response_width,
                key_width=prompt_width + response_width,
            )
        )
    return torch.cat(outputs)[index.token_slot]
