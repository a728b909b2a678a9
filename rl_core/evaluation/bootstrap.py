"""Resampling items: intervals and tests that assume nothing about how the shares of right responses are distributed.

An item is resampled with all its responses, since responses to one item are not independent. Items with equal values
are interchangeable, so a resample is one multinomial draw over the different values.
"""

from collections.abc import Sequence

import numpy as np

from rl_core.evaluation.statistics import Interval
from rl_core.randomness import keyed_seed

RESAMPLES = 10_000


def bootstrap_interval(values: Sequence[float], *, confidence: float = 0.95, resamples: int = RESAMPLES) -> Interval:
    """Percentile interval of the mean over items (Efron and Tibshirani, An Introduction to the Bootstrap, 1993, chapter
    13). Where the values are differences on the same items, it is the interval of the difference. The seed is fixed:
    equal values give equal intervals, whatever their order.

    Args:
        values: [items] one number for each item, such as its share of right responses.
        confidence: Coverage, between 0 and 1.
        resamples: Number of resamples.

    Raises:
        ValueError: there is no item.
    """
    if not values:
        raise ValueError("a bootstrap needs at least one item")
    different, counts = np.unique(np.asarray(values, np.float64), return_counts=True)
    drawn = _generator("mean").multinomial(len(values), counts / len(values), size=resamples)
    low, high = np.quantile(drawn @ different / len(values), [(1 - confidence) / 2, (1 + confidence) / 2])
    return float(low), float(high)


def sign_flip_p_value(differences: Sequence[float], *, resamples: int = RESAMPLES) -> float:
    """Two-sided p-value that two models are equally good, from the differences of their shares of right responses, item
    by item: under the null hypothesis each difference is as likely as its opposite (Fisher's randomisation test). With
    one response an item this is McNemar's test, whose exact p-value statistics.mcnemar gives.

    Raises:
        ValueError: there is no item.
    """
    if not differences:
        raise ValueError("a paired test needs at least one item")
    sizes, counts = np.unique(np.abs(np.asarray(differences, np.float64)), return_counts=True)
    flipped = (2 * _generator("sign").binomial(counts, 0.5, size=(resamples, len(counts))) - counts) @ sizes
    at_least = np.abs(flipped) >= abs(sum(differences)) - 1e-9  # sums of equal shares differ by rounding
    return float((1 + at_least.sum()) / (1 + resamples))


def _generator(purpose: str) -> np.random.Generator:
    return np.random.default_rng(keyed_seed(0, "bootstrap", purpose))
