"""Resampling items: intervals and tests that assume nothing about how the shares of right responses are distributed.

An item drawn with its responses is drawn whole, so answers to one item count as the relatives that they are. Items with
equal values are interchangeable, which makes a resample one multinomial draw over the different values.
"""

from collections.abc import Sequence

import numpy as np

from rl_core.evaluation.statistics import Interval
from rl_core.randomness import keyed_seed

RESAMPLES = 10_000


def bootstrap_interval(values: Sequence[float], *, confidence: float = 0.95, resamples: int = RESAMPLES) -> Interval:
    """Percentile interval of the mean over items (Efron and Tibshirani, An Introduction to the Bootstrap, 1993, chapter
    13); of a difference, when the values are differences on the same items. The draws are keyed: equal values give
    equal intervals, whatever their order.

    Args:
        values: [items] one number each, such as its share of right responses.
        confidence: Coverage, between 0 and 1.
        resamples: Draws.

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
    """Two-sided p-value that two answerers are equally good, from the differences of their shares item by item: under
    the null hypothesis each difference is as likely as its opposite (Fisher's randomisation test; for one response an
    item, McNemar's test, which statistics.mcnemar gives exactly).

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
