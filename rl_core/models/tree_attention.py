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
    (num_prompts, prompt_width), (num_responses, response_width) = layout.prompt_shape, layout.response_shape
    sizes = [num_prompts * prompt_width, num_responses * response_width]
    prompt_q, response_q = torch.split(query.index_select(0, index.slot_token), sizes)
    prompt_kv, response_kv = torch.split(torch.cat([key, value], dim=1).index_select(0, index.slot_token), sizes)
    prompt_kv = prompt_kv.view(num_prompts, prompt_width, *prompt_kv.shape[1:])
    # Padding stands behind the tokens of a prompt, where causality hides it.
    outputs = [
        _attend(prompt_q.view(num_prompts, prompt_width, *prompt_q.shape[1:]), prompt_kv, scale=scale, mask=None)
    ]
    if num_responses:
        response_kv = response_kv.view(num_responses, response_width, *response_kv.shape[1:])
        seen = torch.cat([prompt_kv.index_select(0, layout.response_prompt), response_kv], dim=1)
        response_q = response_q.view(num_responses, response_width, *response_q.shape[1:])
        outputs.append(_attend(response_q, seen, scale=scale, mask=index.response_mask))
    return torch.cat(outputs).index_select(0, index.token_slot)


def _attend(query: torch.Tensor, key_value: torch.Tensor, *, scale: float, mask: torch.Tensor | None) -> torch.Tensor:
    """[N, Q, H, D], [N, K, 2G, D] -> [N * Q, H, D]; causal without a mask."""
    key, value = key_value.transpose(1, 2).chunk(2, dim=1)
    query = query.transpose(1, 2)
    out = scaled_dot_product_attention(
        query,
        key,
        value,
        attn_mask=mask,
        is_causal=mask is None,
        scale=scale,
        enable_gqa=query.shape[1] != key.shape[1],
    )
    return out.transpose(1, 2).flatten(0, 1)


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
    (_, prompt_width), (num_responses, response_width) = layout.prompt_shape, layout.response_shape
    prompt = index.prompt_tokens
    order, outputs = (
        [prompt],
        [
            attend(
                query.index_select(0, prompt),
                key.index_select(0, prompt),
                value.index_select(0, prompt),
                cu_seqlens_q=index.prompt_bounds,
                cu_seqlens_k=index.prompt_bounds,
                max_seqlen_q=prompt_width,
                max_seqlen_k=prompt_width,
                softmax_scale=scale,
                causal=True,
            )
        ],
    )
    if num_responses:
        order.append(index.response_tokens)
        outputs.append(
            attend(
                query.index_select(0, index.response_tokens),
                key.index_select(0, index.key_tokens),
                value.index_select(0, index.key_tokens),
                cu_seqlens_q=index.response_bounds,
                cu_seqlens_k=index.key_bounds,
                max_seqlen_q=response_width,
                max_seqlen_k=prompt_width + response_width,
                softmax_scale=scale,
                causal=True,
            )
        )
    return torch.zeros_like(query).index_copy(0, torch.cat(order), torch.cat(outputs))
