"""pass@k and majority@k, for several responses to an item."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean


@dataclass(frozen=True, kw_only=True, slots=True)
class Vote:
    """A response: the answer that was read from it, and whether it is right."""

    answer: str | None
    is_right: bool


def pass_at_k(num_right: Sequence[int], *, n: int, k: int) -> float:
    """The chance that at least one of k responses is right, from n responses to each item (Chen et al. 2021, arXiv
    2107.03374, equation 1): the mean over items of 1 - C(n - c, k) / C(n, k), which is unbiased.

    Args:
        num_right: [items] number of right responses c, 0 .. n.
        k: 1 .. n.
    """
    if not num_right or not 1 <= k <= n or not all(0 <= right <= n for right in num_right):
        raise ValueError(f"pass@{k} of {n} responses each needs items with 0 to {n} right ones, got {num_right[:5]}")
    return fmean(1 - math.comb(n - right, k) / math.comb(n, k) for right in num_right)


def majority_at_k(items: Sequence[Sequence[Vote]], *, k: int) -> float:
    """How often the most common of k answers is right (self-consistency: Wang et al. 2022, arXiv 2203.11171).

    Answers are equal when their texts are equal. Of several equally common answers the earliest counts. Responses
    without an answer have no vote; an item where no response has an answer is wrong. With n responses to an item, the
    mean over its n // k blocks of k responses is taken.

    Args:
        items: [items][n] responses, in the order of the samples.
        k: 1 .. n.
    """
    if not items or k < 1 or min(map(len, items)) < k:
        raise ValueError(f"majority@{k} needs items with at least {k} response(s)")
    return fmean(
        fmean(_majority_is_right(votes[start : start + k]) for start in range(0, len(votes) - k + 1, k))
        for votes in items
    )


def sample_counts(n: int) -> list[int]:
    """The values of k that are reported: the powers of two below n, and n."""
    return [*(1 << power for power in range((n - 1).bit_length())), n]


def _majority_is_right(votes: Sequence[Vote]) -> bool:
    counts = Counter(vote.answer for vote in votes if vote.answer is not None)
    if not counts:
        return False
    (winner, _), *_ = counts.most_common(1)  # of equally common answers, the first that was counted
    return next(vote.is_right for vote in votes if vote.answer == winner)
