"""Which slots of padded trees see which, where a layer masks more than later tokens. Letters as in
rl_core.models.tree_layout."""

from functools import lru_cache
from typing import NamedTuple

import torch

from rl_core.models.attention_rules import Mask
from rl_core.models.row_moves import sent
from rl_core.models.tree_layout import TreeLayout


class SeenSlots(NamedTuple):
    """True where a query (second to last dimension) sees a key. Every slot sees itself, so that no query is blind; of
    its prompt a response may see nothing."""

    prompts: torch.Tensor  # [1 or B, P, P] bool
    responses: torch.Tensor  # [1 or B, R, R] bool, of responses of one prompt with themselves
    shared: torch.Tensor  # [B, R, P] bool, of responses of one prompt with it


@lru_cache(maxsize=4)
def seen_slots(layout: TreeLayout, mask: Mask) -> SeenSlots:
    """Images, and with them blocks, are in prompts only. Cached, because a model has few kinds of layers."""
    (_, prompt_width), (_, response_width) = layout.prompt_shape, layout.response_shape
    lengths = sent(layout.prompts[1], layout.device)[:, None, None]
    in_prompt = torch.arange(prompt_width, device=layout.device)
    in_response = torch.arange(response_width, device=layout.device)
    after_prompt = lengths + in_response[:, None]  # [B, R, 1]
    own = after_prompt if mask.chunk is not None else in_response[None, :, None]  # a window does not begin anywhere
    return SeenSlots(
        prompts=_seen_in_prompts(layout, mask, in_prompt),
        responses=(in_response[:, None] >= in_response) & _near(own, own.mT, mask),
        shared=(in_prompt < lengths) & _near(after_prompt, in_prompt, mask),
    )


def _seen_in_prompts(layout: TreeLayout, mask: Mask, at: torch.Tensor) -> torch.Tensor:
    """[1 or B, P, P]."""
    earlier, near = (at[:, None] >= at)[None], _near(at[:, None], at, mask)
    if mask.blocks is None:
        return earlier & near
    starts, lengths = (sent(part, layout.device)[:, None] for part in layout.prompts)
    tokens = (starts + at).clamp(max=layout.num_tokens - 1)
    blocks = mask.blocks[0].index_select(0, tokens.flatten()).view(tokens.shape).masked_fill(at >= lengths, -1)
    together = (blocks[:, :, None] == blocks[:, None]) & (blocks[:, :, None] >= 0)
    return (earlier | together) & near if mask.blocks_in_window else (earlier & near) | together


def _near(query: torch.Tensor, key: torch.Tensor, mask: Mask) -> torch.Tensor:
    """Whether window and chunks let a query at one place of its sequence see a key at another."""
    near = torch.ones_like(query - key, dtype=torch.bool)
    if mask.window is not None:
        near = near & (query - key < mask.window)
    if mask.chunk is not None:
        near = near & (query // mask.chunk == key // mask.chunk)
    return near


def added(seen: torch.Tensor) -> torch.Tensor:
    """What is added to scores: float32, 0 where a key is seen, and -inf elsewhere."""
    return torch.zeros(seen.shape, device=seen.device).masked_fill_(~seen, float("-inf"))
