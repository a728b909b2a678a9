"""Where the prompts and responses of packed trees lie, as the index tensors that attention needs.

Letters: T packed tokens; B prompts of at most P tokens; M responses of at most R inputs (the empty ones left out).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from rl_core.models.positions import Int64Array


@dataclass(frozen=True, kw_only=True, slots=True)
class PaddedIndex:
    """Trees as two padded blocks: B x P prompt slots, then M x R response slots.

    Attributes:
        slot_token: [B * P + M * R] int64 packed token of each slot; unused slots repeat token 0.
        token_slot: [T] int64 slot of each packed token.
        response_mask: [M, 1, R, P + R] bool, True where a response slot attends to a slot of its prompt or to its own
            past. Every row has a True, so that unused slots stay finite.
    """

    slot_token: torch.Tensor
    token_slot: torch.Tensor
    response_mask: torch.Tensor


@dataclass(frozen=True, kw_only=True, slots=True)
class RaggedIndex:
    """Trees as runs of their own length, for kernels that take cumulative lengths (int32, from 0).

    Attributes:
        prompt_tokens: [sum of prompts] int64 packed tokens of the prompts.
        prompt_bounds: [B + 1] where each prompt begins and ends in `prompt_tokens`.
        response_tokens: [sum of responses] int64 packed tokens of the responses, the queries.
        response_bounds: [M + 1].
        key_tokens: [sum of prompt + response] int64 packed tokens that each response attends to: prompt, then own.
        key_bounds: [M + 1].
    """

    prompt_tokens: torch.Tensor
    prompt_bounds: torch.Tensor
    response_tokens: torch.Tensor
    response_bounds: torch.Tensor
    key_tokens: torch.Tensor
    key_bounds: torch.Tensor


class TreeLayout:
    """The shape of one packed sequence. Index tensors are made once, at their first use, and shared by all layers."""

    def __init__(
        self, prompt_lengths: Sequence[int], response_inputs: Sequence[Sequence[int]], *, device: torch.device
    ) -> None:
        """Trees lie one after the other, each prompt before its responses.

        Args:
            prompt_lengths: [B] tokens of each prompt, >= 1.
            response_inputs: [B][n] inputs of each response (its tokens less one), >= 0.
            device: Where the index tensors go.
        """
        self._device = device
        self.prompt_lengths = tuple(prompt_lengths)
        prompt_spans: list[Int64Array] = []
        response_spans: list[Int64Array] = []
        response_prompt: list[int] = []
        offset = 0
        for tree, (prompt_length, lengths) in enumerate(zip(prompt_lengths, response_inputs, strict=True)):
            prompt_spans.append(np.arange(offset, offset + prompt_length, dtype=np.int64))
            offset += prompt_length
            for length in filter(None, lengths):
                response_spans.append(np.arange(offset, offset + length, dtype=np.int64))
                response_prompt.append(tree)
                offset += length
        self.num_tokens = offset
        self._prompt_spans, self._response_spans = prompt_spans, response_spans
        self._response_prompt = response_prompt

    @property
    def prompt_shape(self) -> tuple[int, int]:
        """(B, P)."""
        return len(self._prompt_spans), max(map(len, self._prompt_spans))

    @property
    def response_shape(self) -> tuple[int, int]:
        """(M, R); (0, 0) when every response is a single token."""
        return len(self._response_spans), max(map(len, self._response_spans), default=0)

    @cached_property
    def response_prompt(self) -> torch.Tensor:
        """[M] int64 the prompt that each response branches from."""
        return self._tensor(np.array(self._response_prompt, np.int64))

    @cached_property
    def padded(self) -> PaddedIndex:
        """The trees as padded blocks."""
        (num_prompts, prompt_width), (num_responses, response_width) = self.prompt_shape, self.response_shape
        starts = [*range(0, num_prompts * prompt_width, prompt_width)]
        starts += [num_prompts * prompt_width + row * response_width for row in range(num_responses)]
        slot_token = np.zeros(num_prompts * prompt_width + num_responses * response_width, np.int64)
        token_slot = np.empty(self.num_tokens, np.int64)
        for start, span in zip(starts, self._prompt_spans + self._response_spans, strict=True):
            slot_token[start : start + len(span)] = span
            token_slot[span] = np.arange(start, start + len(span))
        return PaddedIndex(
            slot_token=self._tensor(slot_token),
            token_slot=self._tensor(token_slot),
            response_mask=self._tensor(self._response_mask()),
        )

    @cached_property
    def ragged(self) -> RaggedIndex:
        """The trees as runs."""
        keys = [
            np.concatenate([self._prompt_spans[tree], span])
            for tree, span in zip(self._response_prompt, self._response_spans, strict=True)
        ]
        prompt_tokens, prompt_bounds = self._runs(self._prompt_spans)
        response_tokens, response_bounds = self._runs(self._response_spans)
        key_tokens, key_bounds = self._runs(keys)
        return RaggedIndex(
            prompt_tokens=prompt_tokens,
            prompt_bounds=prompt_bounds,
            response_tokens=response_tokens,
            response_bounds=response_bounds,
            key_tokens=key_tokens,
            key_bounds=key_bounds,
        )

    def _response_mask(self) -> np.ndarray:
        """[M, 1, R, P + R] bool."""
        (_, prompt_width), (num_responses, response_width) = self.prompt_shape, self.response_shape
        own_prompt = np.array(self.prompt_lengths)[np.array(self._response_prompt, np.int64)]
        mask = np.empty((num_responses, 1, response_width, prompt_width + response_width), bool)
        mask[..., :prompt_width] = (np.arange(prompt_width) < own_prompt[:, None])[:, None, None, :]
        mask[..., prompt_width:] = np.tri(response_width, dtype=bool)
        return mask

    def _runs(self, spans: Sequence[Int64Array]) -> tuple[torch.Tensor, torch.Tensor]:
        bounds = np.cumsum([0, *map(len, spans)], dtype=np.int32)
        return self._tensor(np.concatenate([np.empty(0, np.int64), *spans])), self._tensor(bounds)

    def _tensor(self, array: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(array).to(self._device)
