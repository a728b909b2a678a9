"""From token losses to one number, over the whole optimizer batch.

The denominators are those of the optimizer batch, never of a micro-batch, so the sum of the micro-batches' losses has
the same gradient however the batch was cut (design contract 3). A mean of micro-batch means would not: two
micro-batches of 1 and 3 tokens with losses 4 | 0, 0, 0 have means 4 and 0, whose mean is 2, where the batch's is 1.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch

LossAverage = Literal["token", "seq"]


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchTotals:
    """Size of an optimizer batch over all micro-batches and workers."""

    tokens: int
    sequences: int


def token_weights(lengths: Sequence[int], *, mode: LossAverage, totals: BatchTotals) -> torch.Tensor:
    """The weight of each response token, so that `(weights * per_token).sum()` is this part of the batch's loss.

    `token`: 1 / tokens of the batch. `seq`: 1 / (sequences of the batch x own length), the mean over sequences of
    their token means.

    Args:
        lengths: Response tokens of each sequence in this micro-batch, in order.
        mode: How the loss is averaged.
        totals: Size of the whole optimizer batch.

    Returns:
        [sum(lengths)] float32.
    """
    counts = torch.tensor(lengths, dtype=torch.int64)
    if mode == "token":
        return torch.full((int(counts.sum()),), 1.0 / totals.tokens)
    return (1.0 / (totals.sequences * counts.to(torch.float32))).repeat_interleave(counts)
