"""Packed trees as padded prompts with their padded responses, as the attention of a CPU sees them."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch

from rl_core.models.tree_layout import TreeLayout, ranges


@dataclass(frozen=True, kw_only=True, slots=True)
class SharedPromptIndex:
    """Trees as padded prompts, and padded responses in as many rows for each prompt: B x P prompt slots, then
    (B * N) x R response slots, where N is the largest number of responses of a prompt."""

    slot_tokens: torch.Tensor  # [S] int64 packed token of each slot; unused slots have packed token 0
    unused_slots: torch.Tensor  # [U] int64 the slots without a token
    token_slot: torch.Tensor  # [T] int64 slot of each packed token
    # [B, 1, 1, P] float32, 0 for the slots of a prompt and -inf for those after it; None if all prompts have the same
    # length
    prompt_mask: torch.Tensor | None
    prompt_shape: tuple[int, int]  # (B, P)
    response_shape: tuple[int, int]  # (B * N, R)

    @property
    def has_responses(self) -> bool:
        """Whether any response has an input."""
        return self.response_shape[0] > 0


@lru_cache(maxsize=1)
def shared_prompts(layout: TreeLayout) -> SharedPromptIndex:
    """The slots of a layout. Cached, because every layer needs the same."""
    (starts, lengths), owner = layout.responses, layout.response_prompt
    (num_prompts, prompt_width), (_, response_width) = layout.prompt_shape, layout.response_shape
    counts = np.bincount(owner, minlength=num_prompts)
    most = int(counts.max(initial=0))
    rows = owner * most + ranges(np.zeros(num_prompts, np.int64), counts)
    begins = np.concatenate([np.arange(num_prompts) * prompt_width, num_prompts * prompt_width + rows * response_width])
    slots = ranges(begins, np.concatenate([layout.prompts[1], lengths]))
    tokens = np.concatenate([ranges(*layout.prompts), ranges(starts, lengths)])
    slot_tokens = np.full(num_prompts * (prompt_width + most * response_width), -1, np.int64)
    slot_tokens[slots] = tokens
    token_slot = np.empty(layout.num_tokens, np.int64)
    token_slot[tokens] = slots
    return SharedPromptIndex(
        slot_tokens=torch.from_numpy(slot_tokens.clip(min=0)),
        unused_slots=torch.from_numpy(np.flatnonzero(slot_tokens < 0)),
        token_slot=torch.from_numpy(token_slot),
        prompt_mask=_prompt_mask(layout),
        prompt_shape=layout.prompt_shape,
        response_shape=(num_prompts * most, response_width),
    )


def _prompt_mask(layout: TreeLayout) -> torch.Tensor | None:
    """[B, 1, 1, P]; None if all prompts have the same length."""
    lengths, (_, width) = layout.prompts[1], layout.prompt_shape
    if (lengths == width).all():
        return None
    mask = np.where(np.arange(width) < lengths[:, None], 0.0, -np.inf).astype(np.float32)
    return torch.from_numpy(mask[:, None, None])
