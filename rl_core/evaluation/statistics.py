"""Confidence intervals and significance tests for accuracies."""

import math
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import NormalDist, fmean, stdev
from typing import Final

import numpy as np
from scipy.stats import binomtest, ttest_ind
from scipy.stats import t as student_t

from rl_core.randomness import keyed_seed

Interval = tuple[float, float]

CONFIDENCE: Final = 0.95
"""Coverage of every interval."""

Z: Final = NormalDist().inv_cdf(0.5 + CONFIDENCE / 2)
"""Standard errors of half an interval."""

RESAMPLES: Final = 10_000

SIGNIFICANT: Final = 0.05
"""A difference with a p-value below it counts as more than luck."""


def wilson_interval(successes: float, n: float) -> Interval:
    """Score interval of a proportion of `n` responses (Wilson, JASA 22, 1927): it stays inside [0, 1], and is honest
    near the ends. Fractions are allowed, for an effective sample size."""
    share = successes / n
    centre = share + Z * Z / (2 * n)
    half = Z * math.sqrt(share * (1 - share) / n + Z * Z / (4 * n * n))
    scale = 1 + Z * Z / n
    # Rounding alone could push an end past the estimate or past 0 and 1.
    return max(0.0, min(share, (centre - half) / scale)), min(1.0, max(share, (centre + half) / scale))


def mean_of_known(values: Iterable[float | None]) -> float | None:
    """The mean without the unknown values; None where all are unknown."""
    known = [value for value in values if value is not None]
    # fsum: equal shares in another order must not differ by rounding, which would count as a flipped item.
    return math.fsum(known) / len(known) if known else None


def clustered_wilson_interval(item_shares: Sequence[float], *, samples_per_item: float) -> Interval:
    """Wilson's interval for k responses to each of N items. They resemble each other, so they count as n_eff = p (1 -
    p) / v responses, where v is the variance of the mean over items (the design effect of Kish, Survey Sampling, 1965;
    for Wilson's interval Franco et al., J. Survey Statistics and Methodology 7, 2019). n_eff lies between N and N * k;
    it is N where k = 1, and where all responses are right or all are wrong."""
    mean = fmean(item_shares)
    effective = _effective_answers(item_shares, mean, most=len(item_shares) * samples_per_item)
    return wilson_interval(mean * effective, effective)


def _effective_answers(item_shares: Sequence[float], mean: float, *, most: float) -> float:
    items = len(item_shares)
    if mean in (0.0, 1.0):
        return items
    variance = fmean((share - mean) ** 2 for share in item_shares) / items
    if variance * most <= mean * (1 - mean):
        return most
    return max(items, mean * (1 - mean) / variance)  # a rounding error could fall below


def mcnemar(b: int, c: int) -> float:
    """Exact two-sided p-value that two models are equally good (McNemar, Psychometrika 12, 1947), where only the first
    answered `b` items rightly and only the second `c`: under the null hypothesis b is binomial."""
    return float(binomtest(b, b + c).pvalue) if b + c else 1.0


@dataclass(frozen=True, kw_only=True, slots=True)
class PairedCounts:
    """Number of items by which of two models answered them rightly."""

    both: int
    only_first: int
    only_second: int
    neither: int

    @property
    def n(self) -> int:
        """All items."""
        return self.both + self.only_first + self.only_second + self.neither


def paired_difference_interval(counts: PairedCounts) -> Interval:
    """Confidence interval of the second accuracy minus the first, on the same items (Newcombe, Statistics in Medicine
    17, 1998, pages 2635-2650, method 10): the two Wilson intervals, squared and added with their correlation."""
    n = counts.n
    first, second = counts.both + counts.only_first, counts.both + counts.only_second
    low1, high1 = wilson_interval(first, n)
    low2, high2 = wilson_interval(second, n)
    p1, p2 = first / n, second / n
    phi = _phi(counts)
    below = _combined(p2 - low2, high1 - p1, phi)
    above = _combined(high2 - p2, p1 - low1, phi)
    return max(-1.0, p2 - p1 - below), min(1.0, p2 - p1 + above)


def _combined(one: float, other: float, phi: float) -> float:
    return math.sqrt(max(0.0, one * one - 2 * phi * one * other + other * other))


def _phi(counts: PairedCounts) -> float:
    """Correlation between the models' answers, with the correction of method 10; 0 where those of one do not vary."""
    margins = (
        (counts.both + counts.only_first)
        * (counts.only_second + counts.neither)
        * (counts.both + counts.only_second)
        * (counts.only_first + counts.neither)
    )
    if margins == 0:
        return 0.0
    cross = counts.both * counts.neither - counts.only_first * counts.only_second
    corrected = max(cross - counts.n / 2, 0.0) if cross > 0 else float(cross)
    return corrected / math.sqrt(margins)


def bootstrap_interval(values: Sequence[float], *, resamples: int = RESAMPLES) -> Interval:
    """Percentile interval of the mean over items (Efron and Tibshirani, An Introduction to the Bootstrap, 1993, chapter
    13), of shares or of differences on the same items. The seed is fixed: equal values give equal intervals, whatever
    their order. Items with equal values are interchangeable, so a resample is one multinomial draw over the different
    values."""
    different, counts = np.unique(np.asarray(values, np.float64), return_counts=True)
    drawn = _generator("mean").multinomial(len(values), counts / len(values), size=resamples)
    low, high = np.quantile(drawn @ different / len(values), [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return float(low), float(high)


def sign_flip_p_value(differences: Sequence[float], *, resamples: int = RESAMPLES) -> float:
    """Two-sided p-value that two models are equally good, from the differences of their shares of right responses, item
    by item: under the null hypothesis each difference is as likely as its opposite (Fisher's randomisation test). With
    one response to each item this is McNemar's test, whose exact p-value `mcnemar` gives."""
    sizes, counts = np.unique(np.abs(np.asarray(differences, np.float64)), return_counts=True)
    flipped = (2 * _generator("sign").binomial(counts, 0.5, size=(resamples, len(counts))) - counts) @ sizes
    at_least = np.abs(flipped) >= abs(sum(differences)) - 1e-9  # sums of equal shares differ by rounding
    return float((1 + at_least.sum()) / (1 + resamples))


def _generator(purpose: str) -> np.random.Generator:
    return np.random.default_rng(keyed_seed(0, "bootstrap", purpose))


def mean_interval(values: Sequence[float]) -> Interval | None:
    """Interval of a mean by Student's t (Biometrika 6, 1908), for independent values; None for fewer than two."""
    if len(values) < 2:
        return None
    mean = fmean(values)
    half = float(student_t.ppf(0.5 + CONFIDENCE / 2, len(values) - 1)) * stdev(values) / math.sqrt(len(values))
    return mean - half, mean + half


@dataclass(frozen=True, kw_only=True, slots=True)
class MeanDifference:
    """The difference of two means: its 95 % interval, and the p-value that the means are equal."""

    ci95: Interval
    p_value: float


def welch_test(first: Sequence[float], second: Sequence[float]) -> MeanDifference | None:
    """Welch's test of the second sample's mean against the first's (Biometrika 34, 1947), which Colas et al. 2019
    (arXiv 1904.06979) recommend for runs of reinforcement learning with different seeds. None where it says nothing: a
    sample has one value only, or neither sample varies."""
    if min(len(first), len(second)) < 2 or len(set(first)) == len(set(second)) == 1:
        return None
    with warnings.catch_warnings():
        # A sample whose values are all equal has no variance, which is no loss of precision here.
        warnings.filterwarnings("ignore", message="Precision loss occurred", category=RuntimeWarning)
        test = ttest_ind(second, first, equal_var=False)
    interval = test.confidence_interval(CONFIDENCE)
    return MeanDifference(ci95=(float(interval.low), float(interval.high)), p_value=float(test.pvalue))


def holm(p_values: Sequence[float]) -> list[float]:
    """p-values of several tests, adjusted so that the chance of any false alarm stays as small as for one (Holm,
    Scandinavian Journal of Statistics 6, 1979)."""
    adjusted = [0.0] * len(p_values)
    largest = 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[place]))
        adjusted[place] = largest
    return adjusted
