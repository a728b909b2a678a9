"""Attention over packed trees of short prompts and responses, as products of matrices for all trees at once.

The kernel of `scaled_dot_product_attention` computes each head of each row alone, in blocks that tens of tokens do not
fill. With 35 tokens in a prompt and ten in a response, as in the quickstart, the products take half of its time. For
long rows the kernel is faster, and it keeps no scores.

The scores of a response with its prompt and with itself lie side by side, under one softmax. All heads that share keys,
and all responses of a prompt, are rows of one product with the prompt's keys. For this, the states of each head of each
token are put into slots, in the order of prompts, key/value heads, responses, query heads and tokens.

Letters as in rl_core.models.tree_attention and rl_core.models.tree_layout; B prompts of P slots have N responses of R
slots each, and m = H / G query heads share a key/value head.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import torch

from rl_core.models.attention_rules import NO_RULES, AttentionRules, Mask
from rl_core.models.cpu.slots import SharedPromptIndex, shared_prompts
from rl_core.models.row_moves import pad, unpad
from rl_core.models.seen_slots import added, seen_slots
from rl_core.models.tree_layout import TreeLayout

_LONGEST_PROMPT, _LONGEST_RESPONSE = 128, 32
"""Tokens up to which the products are faster on two cores, for head sizes from 32 to 128."""


def is_short(layout: TreeLayout) -> bool:
    """Whether `tree_products` is faster than the kernel."""
    return layout.prompt_shape[1] <= _LONGEST_PROMPT and layout.response_shape[1] <= _LONGEST_RESPONSE


def tree_products(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    *,
    layout: TreeLayout,
    scale: float,
    rules: AttentionRules = NO_RULES,
) -> torch.Tensor:
    """Tree attention by products of matrices; arguments and result are those of
    `rl_core.models.tree_attention.tree_sdpa`."""
    index = _index(layout, query.shape[1], key.shape[1])
    masks = index.masks if rules.mask is None else _masks(layout, query.shape[1], key.shape[1], rules.mask)
    in_prompts, in_responses, of_prompts = (mask.to(query.dtype) for mask in masks)
    prompt_sinks, sinks = (None, None) if rules.sinks is None else index.query.sinks(rules.sinks.to(query.dtype))
    queries = index.query.slots(query * scale)
    keys, values = (index.key.slots(states) for states in (key, value))

    in_prompt = _weights(_scores(in_prompts, queries.prompts, keys.prompts, rules.softcap), prompt_sinks)
    to_prompt = _scores(of_prompts, queries.responses, keys.prompts, rules.softcap)
    to_itself = _scores(in_responses, queries.by_response, keys.by_response, rules.softcap)
    weights = _weights(torch.cat([to_prompt, _grouped_as(to_prompt, to_itself)], dim=-1), sinks)
    to_prompt, to_itself = torch.split(weights, [to_prompt.shape[-1], to_itself.shape[-1]], dim=-1)
    from_prompt = _grouped_as(queries.by_response, torch.bmm(to_prompt, values.prompts))
    responses = torch.baddbmm(from_prompt, _grouped_as(queries.by_response, to_itself), values.by_response)
    return index.query.tokens(torch.bmm(in_prompt, values.prompts), responses)


def _scores(mask: torch.Tensor, query: torch.Tensor, key: torch.Tensor, softcap: float | None) -> torch.Tensor:
    if softcap is None:
        return torch.baddbmm(mask, query, key.mT)
    return (torch.bmm(query, key.mT) / softcap).tanh() * softcap + mask


def _weights(scores: torch.Tensor, sinks: torch.Tensor | None) -> torch.Tensor:
    """[X, Y, Z] -> the same; `sinks` [X, Y, 1] are the scores of one more key."""
    if sinks is None:
        return scores.softmax(-1)
    return torch.cat([scores, sinks], dim=-1).softmax(-1)[..., :-1]


def _grouped_as(other: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """The same rows in as many matrices as `other` has: [X, Y, W] and [x, y, Z], where X * Y = x * y -> [X, Y, Z]."""
    return rows.view(*other.shape[:-1], rows.shape[-1])


class _Slots(NamedTuple):
    """States in slots; k is m for queries, and 1 for keys and values."""

    prompts: torch.Tensor  # [B * G, k * P, D]
    responses: torch.Tensor  # [B * G, N * k * R, D]
    by_response: torch.Tensor  # The responses once more, as [B * G * N, k * R, D]


@dataclass(frozen=True, kw_only=True, slots=True)
class _HeadIndex:
    """Where each head of each token lies among the slots."""

    slot_rows: torch.Tensor  # [S] int64 the row (token * heads + head) of each slot; an unused slot has one of token 0
    row_slot: torch.Tensor  # [T * heads] int64 the slot of each row
    prompts: tuple[int, int]  # (B * G, k * P)
    responses: tuple[int, int]  # (B * G * N, k * R)
    heads: int  # H for queries, G for keys and values
    num_prompts: int  # B

    @classmethod
    def of(cls, index: SharedPromptIndex, heads: int, key_heads: int) -> "_HeadIndex":
        (num_prompts, width), (num_responses, response_width) = index.prompt_shape, index.response_shape
        by_slot = torch.arange(len(index.slot_tokens) * heads).view(-1, key_heads, heads // key_heads)
        prompts, responses = torch.split(by_slot, [num_prompts * width, num_responses * response_width])
        each = num_responses // num_prompts
        order = torch.cat(
            [
                prompts.view(num_prompts, width, *by_slot.shape[1:]).permute(0, 2, 3, 1).flatten(),
                responses.view(num_prompts, each, response_width, *by_slot.shape[1:]).permute(0, 3, 1, 4, 2).flatten(),
            ]
        )
        slot_of = torch.empty_like(order).index_copy_(0, order, torch.arange(len(order)))
        offsets = torch.arange(heads)
        return cls(
            slot_rows=(index.slot_tokens[:, None] * heads + offsets).flatten()[order],
            row_slot=slot_of[(index.token_slot[:, None] * heads + offsets).flatten()],
            prompts=(num_prompts * key_heads, heads // key_heads * width),
            responses=(num_responses * key_heads, heads // key_heads * response_width),
            heads=heads,
            num_prompts=num_prompts,
        )

    def slots(self, states: torch.Tensor) -> _Slots:
        """[T, heads, D] -> the slots."""
        size = states.shape[-1]
        rows = pad(states.reshape(-1, size), slot_rows=self.slot_rows, row_slot=self.row_slot)
        prompts, responses = torch.split(rows, [count * width for count, width in (self.prompts, self.responses)])
        num_prompts, (num_responses, width) = self.prompts[0], self.responses
        return _Slots(
            prompts.view(*self.prompts, size),
            responses.view(num_prompts, num_responses // num_prompts * width, size),
            responses.view(*self.responses, size),
        )

    def sinks(self, of_heads: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """[H] -> [B * G, m * P, 1] and [B * G, N * m * R, 1], the number of each row's head."""
        (rows, width), (response_rows, response_width) = self.prompts, self.responses
        key_heads = rows // self.num_prompts
        together = self.heads // key_heads
        each = response_rows // rows
        by_key = of_heads.view(1, key_heads, 1, together, 1)
        prompts = by_key.expand(self.num_prompts, -1, 1, -1, width // together)
        responses = by_key.expand(self.num_prompts, -1, each, -1, response_width // together)
        return prompts.reshape(rows, width, 1), responses.reshape(rows, each * response_width, 1)

    def tokens(self, prompts: torch.Tensor, by_response: torch.Tensor) -> torch.Tensor:
        """The inverse of `slots` -> [T, heads, D]."""
        rows = torch.cat([prompts.flatten(0, 1), by_response.flatten(0, 1)])
        return unpad(rows, row_slot=self.row_slot).view(-1, self.heads, rows.shape[-1])


class _HeadMasks(NamedTuple):
    """What is added to scores: 0 for keys that a query attends to, and -inf for others."""

    in_prompts: torch.Tensor  # [m * P, P], or [B * G, m * P, P]
    in_responses: torch.Tensor  # [m * R, R], or [B * G * N, m * R, R]
    of_prompts: torch.Tensor  # [B * G, 1, P] the slots after the end of a prompt, or [B * G, N * m * R, P]


class _Index(NamedTuple):
    query: _HeadIndex
    key: _HeadIndex
    masks: _HeadMasks


@lru_cache(maxsize=1)
def _index(layout: TreeLayout, heads: int, key_heads: int) -> _Index:
    """Cached, because every layer needs the same."""
    index, together = shared_prompts(layout), heads // key_heads
    (num_prompts, width), (_, response_width) = index.prompt_shape, index.response_shape
    unused = torch.zeros(num_prompts, 1, width) if index.prompt_mask is None else index.prompt_mask[:, 0]
    return _Index(
        _HeadIndex.of(index, heads, key_heads),
        _HeadIndex.of(index, key_heads, key_heads),
        _HeadMasks(
            _later(width).repeat(together, 1),
            _later(response_width).repeat(together, 1),
            unused.repeat_interleave(key_heads, dim=0),
        ),
    )


@lru_cache(maxsize=2)
def _masks(layout: TreeLayout, heads: int, key_heads: int, mask: Mask) -> _HeadMasks:
    """Where a layer masks more than later tokens. Cached, because a model has few kinds of layers."""
    index, together = shared_prompts(layout), heads // key_heads
    (num_prompts, width), (num_responses, response_width) = index.prompt_shape, index.response_shape
    each = num_responses // num_prompts
    prompts, responses, shared = (added(part) for part in seen_slots(layout, mask))

    def of_heads(part: torch.Tensor, each: int) -> torch.Tensor:
        """[B, Y, Z] -> [B, G, each, m, Y, Z]."""
        return part[:, None, None, None].expand(num_prompts, key_heads, each, together, -1, -1)

    rows, response_rows = num_prompts * key_heads, together * response_width
    return _HeadMasks(
        of_heads(prompts, 1).reshape(rows, together * width, width)
        if len(prompts) > 1
        else prompts[0].repeat(together, 1),
        of_heads(responses, each).reshape(rows * each, response_rows, response_width)
        if len(responses) > 1
        else responses[0].repeat(together, 1),
        of_heads(shared, each).reshape(rows, each * response_rows, width),
    )


def _later(width: int) -> torch.Tensor:
    return torch.full((width, width), float("-inf")).triu_(1)
