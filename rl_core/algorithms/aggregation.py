"""The weights with which token losses are summed over an optimizer batch.

The denominators always belong to the whole optimizer batch, so the sum of the micro-batches' losses has the same
gradient for every split (docs/architecture.md, "Losses know the whole batch"). A mean of micro-batch means does not:
two micro-batches with the token losses 4 and 0, 0, 0 have the means 4 and 0, whose mean is 2, but the mean over the
batch is 1.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch

LossAverage = Literal["token", "seq", "seq_sum_norm"]


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchTotals:
    """Size of an optimizer batch over all micro-batches and workers."""

    tokens: int  # Response tokens
    sequences: int  # Responses
    longest_response: int  # Most tokens that a response may have, a constant of the run


def token_weights(lengths: Sequence[int], *, mode: LossAverage, totals: BatchTotals) -> torch.Tensor:
    """[sum(lengths)] float32, the weight of each response token, so that `(weights * per_token).sum()` is this part of
    the batch's loss; `lengths` are the response tokens of each sequence in this micro-batch.

    `token`: 1 / tokens of the batch. `seq`: 1 / (sequences of the batch x own length), the mean over sequences of their
    token means. `seq_sum_norm`: 1 / (sequences of the batch x longest response), which does not favour short right and
    long wrong responses (Dr. GRPO, arXiv 2503.20783, section 3.1).
    """
    counts = torch.tensor(lengths, dtype=torch.int64)
    if mode == "token":
        return torch.full((int(counts.sum()),), 1.0 / totals.tokens)
    if mode == "seq_sum_norm":
        return torch.full((int(counts.sum()),), 1.0 / (totals.sequences * totals.longest_response))
    return (1.0 / (totals.sequences * counts.to(torch.float32))).repeat_interleave(counts)
