"""Attention over packed trees: a prompt token attends to its prompt up to itself, a response token to its prompt and to
its response up to itself.

There is no mask of T x T. One call computes the prompts and one the responses; the keys of a response are a copy of its
prompt's keys and then its own, so the gradients of all responses add up in the prompt that they share.
rl_core.models.row_moves moves tokens into slots and back, with gradients that are equal to the bit in every run.

Letters: T packed tokens, H query heads, G key/value heads (H a multiple of G), D head size.
"""

from collections.abc import Callable
from functools import partial

import torch
from torch.nn.functional import scaled_dot_product_attention

from rl_core.models.attention_rules import NO_RULES, AttentionRules, Mask
from rl_core.models.row_moves import copy_rows, pad, unpad
from rl_core.models.seen_slots import SeenSlots, seen_slots
from rl_core.models.tree_layout import PaddedIndex, TreeLayout

VarlenAttention = Callable[..., torch.Tensor]


def tree_sdpa(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    *,
    layout: TreeLayout,
    scale: float,
    rules: AttentionRules = NO_RULES,
) -> torch.Tensor:
    """Tree attention with PyTorch's scaled dot product on padded prompts and padded responses: query [T, H, D], key and
    value [T, G, D] -> [T, H, D]. `scale` multiplies the scores. Its calls give no soft cap and no sinks, for which the
    scores are computed here."""
    index = layout.padded

    def with_prompt(prompts: torch.Tensor, responses: torch.Tensor) -> torch.Tensor:
        """[M, P + R, G, D]: the states of a response's prompt, then its own."""
        return torch.cat([copy_rows(prompts, index.prompt_copies), responses], dim=1)

    queries, keys, values = layout.blocks(query), layout.blocks(key), layout.blocks(value)
    # Padding comes after the tokens of a prompt, so the causal mask hides it.
    prompt_mask, response_mask = None, layout.response_mask
    attend = _attend
    if rules.mask is not None or rules.changes_scores:
        seen = seen_slots(layout, rules.mask or Mask())
        prompt_mask, response_mask = seen.prompts[:, None], _response_mask(seen, index)
    if rules.changes_scores:
        attend = partial(_attend_by_scores, rules=rules)
    outputs = [attend(queries[0], keys[0], values[0], scale=scale, mask=prompt_mask)]
    if layout.has_responses:
        outputs.append(attend(queries[1], with_prompt(*keys), with_prompt(*values), scale=scale, mask=response_mask))
    return layout.tokens(outputs)


def _attend(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *, scale: float, mask: torch.Tensor | None
) -> torch.Tensor:
    """[N, Q, H, D] and twice [N, K, G, D] -> [N * Q, H, D]; causal if there is no mask."""
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


def _response_mask(seen: SeenSlots, index: PaddedIndex) -> torch.Tensor:
    """[M, 1, R, P + R] bool."""
    owner = index.prompt_copies.rows
    own = seen.responses if len(seen.responses) > 1 else seen.responses.expand(len(seen.shared), -1, -1)
    return torch.cat([seen.shared.index_select(0, owner), own.index_select(0, owner)], dim=-1)[:, None]


def _attend_by_scores(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    *,
    scale: float,
    mask: torch.Tensor,
    rules: AttentionRules,
) -> torch.Tensor:
    """As `_attend` with a mask, [1 or N, 1, Q, K] bool; keeps every score, in float32 at least."""
    precision = torch.promote_types(query.dtype, torch.float32)
    together = query.shape[2] // key.shape[2]
    queries = query.to(precision).transpose(1, 2)
    keys, values = (part.to(precision).repeat_interleave(together, dim=2).transpose(1, 2) for part in (key, value))
    scores = queries @ keys.mT * scale
    if rules.softcap is not None:
        scores = (scores / rules.softcap).tanh() * rules.softcap
    scores = scores.masked_fill(~mask, float("-inf"))
    if rules.sinks is not None:
        sinks = rules.sinks.to(precision).view(1, -1, 1, 1).expand(*scores.shape[:-1], 1)
        scores = torch.cat([scores, sinks], dim=-1)
    weights = scores.softmax(dim=-1)[..., : key.shape[1]]
    return (weights @ values).to(query.dtype).transpose(1, 2).flatten(0, 1)


def _needs_every_head(query: torch.Tensor, mask: torch.Tensor | None) -> bool:
    """Whether keys must be repeated for each query head. On CUDA the only kernel that takes a mask and fewer key heads
    than query heads stores every score in float32."""
    return query.is_cuda and mask is not None


def tree_varlen(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    *,
    layout: TreeLayout,
    scale: float,
    attend: VarlenAttention,
    rules: AttentionRules = NO_RULES,
) -> torch.Tensor:
    """Tree attention without padding, by `flash_attn.flash_attn_varlen_func` or a function with the same arguments
    (causal masks are aligned to the bottom right); other arguments and result as `tree_sdpa`. Raises ValueError for
    rules that these functions do not have."""
    rules.only("window")
    if rules.mask is not None and rules.mask.window is not None:  # theirs is without the token itself
        attend = partial(attend, window_size=(rules.mask.window - 1, 0))
    index = layout.ragged
    (_, prompt_width), (_, response_width) = layout.prompt_shape, layout.response_shape

    def runs(states: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """[T, N, D] -> the tokens of all prompts, and the tokens of all responses."""
        slots = pad(states, slot_rows=index.slot_tokens, row_slot=index.token_slot)
        return slots[: index.num_prompt_tokens], slots[index.num_prompt_tokens :]

    (prompt_queries, response_queries), (prompt_keys, _), (prompt_values, _) = runs(query), runs(key), runs(value)
    outputs = [
        attend(
            prompt_queries,
            prompt_keys,
            prompt_values,
            cu_seqlens_q=index.prompt_bounds,
            cu_seqlens_k=index.prompt_bounds,
            max_seqlen_q=prompt_width,
            max_seqlen_k=prompt_width,
            softmax_scale=scale,
            causal=True,
        )
    ]
    if layout.has_responses:
        outputs.append(
            attend(
                response_queries,
                copy_rows(key, index.key_copies),
                copy_rows(value, index.key_copies),
                cu_seqlens_q=index.response_bounds,
                cu_seqlens_k=index.key_bounds,
                max_seqlen_q=response_width,
                max_seqlen_k=prompt_width + response_width,
                softmax_scale=scale,
                causal=True,
            )
        )
    return unpad(torch.cat(outputs), row_slot=index.token_slot)
