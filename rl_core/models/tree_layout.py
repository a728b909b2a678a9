"""The index tensors that attention needs to find the prompts and responses of packed trees.

Letters: T packed tokens; B prompts of at most P tokens; M responses of at most R inputs (without empty ones).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np
import numpy.typing as npt
import torch

from rl_core.models.row_moves import Copies, pad, sent, unpad
from rl_core.types import Int64Array


@dataclass(frozen=True, kw_only=True, slots=True)
class PaddedIndex:
    """Trees as two padded blocks: B x P prompt slots, then M x R response slots."""

    slot_tokens: torch.Tensor  # [B * P + M * R] int64 packed token of each slot; unused slots have packed token 0
    token_slot: torch.Tensor  # [T] int64 slot of each packed token
    prompt_copies: Copies  # The prompt of each of the M responses, as copies of the B prompts


@dataclass(frozen=True, kw_only=True, slots=True)
class RaggedIndex:
    """Trees as runs of different lengths, for kernels that take cumulative lengths (int32, from 0)."""

    slot_tokens: torch.Tensor  # [T] int64 packed tokens in the order of the runs: first all prompts, then all responses
    token_slot: torch.Tensor  # [T] int64 index of each packed token in that order
    num_prompt_tokens: int  # Number of prompt tokens
    prompt_bounds: torch.Tensor  # [B + 1] where each prompt begins and ends among the prompt tokens
    response_bounds: torch.Tensor  # [M + 1] where each response begins and ends among the response tokens
    key_copies: Copies  # The packed tokens that each response attends to: its prompt's tokens, then its own
    key_bounds: torch.Tensor  # [M + 1] where the keys of each response begin and end


def ranges(starts: Int64Array, lengths: Int64Array) -> Int64Array:
    """[sum of lengths] the integers start .. start + length - 1 for each pair, concatenated."""
    run_begins = np.cumsum(lengths) - lengths
    return np.repeat(starts - run_begins, lengths) + np.arange(lengths.sum(), dtype=np.int64)


def _padded_block(starts: Int64Array, lengths: Int64Array, *, shape: tuple[int, int]) -> tuple[Int64Array, Int64Array]:
    """[rows, width] the tokens of each run in a row, padded with 0, and [sum of lengths] their slots."""
    slots = ranges(np.arange(shape[0], dtype=np.int64) * shape[1], lengths)
    block = np.zeros(shape, np.int64)
    block.reshape(-1)[slots] = ranges(starts, lengths)
    return block, slots


class TreeSpans:
    """Start and length of every prompt and response in the packed sequence, each prompt before its responses; all [B]
    or [all responses] int64. A response of a single token, which is only a target, has length 0 here."""

    def __init__(self, prompt_lengths: Sequence[int], response_inputs: Sequence[Sequence[int]]) -> None:
        counts = np.array([len(lengths) for lengths in response_inputs], np.int64)
        self.response_prompt = np.repeat(np.arange(len(counts), dtype=np.int64), counts)
        self.prompt_lengths = np.array(prompt_lengths, np.int64)
        self.response_lengths = np.array([length for lengths in response_inputs for length in lengths], np.int64)
        before = np.cumsum(self.response_lengths) - self.response_lengths
        self.response_starts = before + np.cumsum(self.prompt_lengths)[self.response_prompt]
        self.prompt_ends = np.cumsum(self.prompt_lengths) + before[np.cumsum(counts) - counts]
        self.prompt_starts = self.prompt_ends - self.prompt_lengths
        self.num_tokens = int(self.prompt_lengths.sum() + self.response_lengths.sum())


class TreeLayout:
    """The index tensors of one packed sequence, created on first use and shared by all layers.

    Attributes:
        num_tokens: T.
        prompts: Starts and lengths of the prompts, each [B] int64.
        responses: The same of the responses that have inputs, each [M] int64; one of a single token has none.
        response_prompt: [M] int64 the prompt of each of these.
    """

    def __init__(self, spans: TreeSpans, *, device: torch.device) -> None:
        kept = spans.response_lengths > 0
        self.prompts = (spans.prompt_starts, spans.prompt_lengths)
        self.responses = (spans.response_starts[kept], spans.response_lengths[kept])
        self.response_prompt = spans.response_prompt[kept]
        self.num_tokens = spans.num_tokens
        self._device = device

    @property
    def device(self) -> torch.device:
        """Where the index tensors are."""
        return self._device

    @cached_property
    def longest(self) -> int:
        """The most tokens of a prompt with one of its responses."""
        lengths, owner = self.prompts[1], self.response_prompt
        return int(max(lengths.max(), (lengths[owner] + self.responses[1]).max(initial=0)))

    @property
    def prompt_shape(self) -> tuple[int, int]:
        """(B, P)."""
        return len(self.prompts[1]), int(self.prompts[1].max())

    @property
    def response_shape(self) -> tuple[int, int]:
        """(M, R); (0, 0) if every response has a single token."""
        return len(self.responses[1]), int(self.responses[1].max(initial=0))

    @property
    def has_responses(self) -> bool:
        """Whether any response has an input; a response of a single token has none."""
        return len(self.responses[1]) > 0

    @cached_property
    def padded(self) -> PaddedIndex:
        """The trees as padded blocks."""
        prompt_tokens, prompt_slots = _padded_block(*self.prompts, shape=self.prompt_shape)
        response_tokens, response_slots = _padded_block(*self.responses, shape=self.response_shape)
        token_slot = np.empty(self.num_tokens, np.int64)
        token_slot[ranges(*self.prompts)] = prompt_slots
        token_slot[ranges(*self.responses)] = prompt_tokens.size + response_slots
        return PaddedIndex(
            slot_tokens=self._tensor(np.concatenate([prompt_tokens.ravel(), response_tokens.ravel()])),
            token_slot=self._tensor(token_slot),
            prompt_copies=Copies.of(self.response_prompt, device=self._device),
        )

    def blocks(self, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """[T, ...] of the packed tokens -> prompts [B, P, ...] and responses [M, R, ...], padded."""
        slots = pad(rows, slot_rows=self.padded.slot_tokens, row_slot=self.padded.token_slot)
        prompts, responses = torch.split(slots, [prod(self.prompt_shape), prod(self.response_shape)])
        return prompts.view(*self.prompt_shape, *rows.shape[1:]), responses.view(*self.response_shape, *rows.shape[1:])

    def tokens(self, blocks: Sequence[torch.Tensor]) -> torch.Tensor:
        """The inverse of `blocks`, with slots in one dimension: [B * P, ...] and, if any response has an input,
        [M * R, ...] -> [T, ...]."""
        return unpad(torch.cat(list(blocks)), row_slot=self.padded.token_slot)

    @cached_property
    def ragged(self) -> RaggedIndex:
        """The trees as runs."""
        (prompt_starts, prompt_lengths), (starts, lengths) = self.prompts, self.responses
        owner = self.response_prompt
        key_starts = np.stack([prompt_starts[owner], starts], axis=1).ravel()
        key_lengths = np.stack([prompt_lengths[owner], lengths], axis=1).ravel()
        slot_tokens = np.concatenate([ranges(prompt_starts, prompt_lengths), ranges(starts, lengths)])
        return RaggedIndex(
            slot_tokens=self._tensor(slot_tokens),
            token_slot=self._tensor(np.argsort(slot_tokens)),
            num_prompt_tokens=int(prompt_lengths.sum()),
            prompt_bounds=self._bounds(prompt_lengths),
            response_bounds=self._bounds(lengths),
            key_copies=Copies.of(ranges(key_starts, key_lengths), device=self._device),
            key_bounds=self._bounds(prompt_lengths[owner] + lengths),
        )

    @cached_property
    def response_mask(self) -> torch.Tensor:
        """[M, 1, R, P + R] bool, True where a slot of a response attends to a slot of its prompt, or of its response up
        to itself; every row has a True, so that unused slots stay finite. It is made on the device, because it is much
        larger than the lengths that it follows from."""
        (_, prompt_width), (num_responses, response_width) = self.prompt_shape, self.response_shape
        lengths = self._tensor(self.prompts[1][self.response_prompt])
        in_prompt = torch.arange(prompt_width, device=self._device) < lengths[:, None]
        in_response = torch.ones(response_width, response_width, dtype=torch.bool, device=self._device).tril()
        rows = (num_responses, 1, response_width)
        parts = (in_prompt[:, None, None].expand(*rows, -1), in_response.expand(*rows, -1))
        return torch.cat(parts, dim=-1)

    def _bounds(self, lengths: Int64Array) -> torch.Tensor:
        return self._tensor(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32))

    def _tensor(self, array: npt.NDArray[np.generic]) -> torch.Tensor:
        return sent(array, self._device)
