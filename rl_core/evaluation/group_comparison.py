"""Two groups of models on the same items, each group trained several times with other seeds.

There are two questions, and they have different answers. Over items: are these trained models better than those, on
questions like these? Over seeds: is this way of training better than that one, whatever the seed? Few seeds answer the
second one weakly, however many items there are.
"""

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from scipy.stats import ttest_ind

from rl_core.evaluation.bootstrap import bootstrap_interval, sign_flip_p_value
from rl_core.evaluation.statistics import Interval, clustered_wilson_interval

Shares = Mapping[str, float]
"""[uid] -> share of a model's responses to the item that are right."""


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupAccuracy:
    """How well the models of a group do.

    Attributes:
        by_seed: Accuracy of each model.
        n: Items.
        mean: Mean over models and items.
        ci95: 95 % interval over items, of these models (statistics.clustered_wilson_interval).
    """

    by_seed: tuple[float, ...]
    n: int
    mean: float
    ci95: Interval


@dataclass(frozen=True, kw_only=True, slots=True)
class OverSeeds:
    """What the seeds say of a difference: 95 % interval and p-value of Welch's test (Biometrika 34, 1947), which Colas
    et al. 2019 (arXiv 1904.06979) recommend for runs of reinforcement learning."""

    ci95: Interval
    p_value: float


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupComparison:
    """A group against another one.

    Attributes:
        n: Items.
        difference: Mean accuracy of the second group minus that of the first.
        ci95: 95 % interval of the difference over items, by bootstrap.
        p_value: That both are equally good, over items: Fisher's randomisation test (bootstrap.sign_flip_p_value).
        over_seeds: None where a group has one seed only, or where no group varies.
        flipped: [uid] -> second share minus first, of the items where they differ, the largest first.
    """

    n: int
    difference: float
    ci95: Interval
    p_value: float
    over_seeds: OverSeeds | None
    flipped: Mapping[str, float]


def group_accuracy(models: Sequence[Shares]) -> GroupAccuracy:
    """Sum up a group.

    Args:
        models: One mapping a seed, all of the same items.

    Raises:
        ValueError: there is no model or no item, or the models answered different items.
    """
    shares = mean_shares(models)
    return GroupAccuracy(
        by_seed=tuple(fmean(model.values()) for model in models),
        n=len(shares),
        mean=fmean(shares.values()),
        ci95=clustered_wilson_interval(list(shares.values()), samples_an_item=len(models)),
    )


def compare_groups(first: Sequence[Shares], second: Sequence[Shares]) -> GroupComparison:
    """The second group against the first.

    Args:
        first: One mapping a seed.
        second: Likewise, of the same items.

    Raises:
        ValueError: as group_accuracy does, or the groups answered different items.
    """
    one, other = mean_shares(first), mean_shares(second)
    _require_same_items(one, other)
    differences = {uid: other[uid] - one[uid] for uid in one}
    values = list(differences.values())
    flipped = sorted((uid for uid in one if differences[uid]), key=lambda uid: (-abs(differences[uid]), uid))
    return GroupComparison(
        n=len(one),
        difference=fmean(values),
        ci95=bootstrap_interval(values),
        p_value=sign_flip_p_value(values),
        over_seeds=over_seeds(group_accuracy(first).by_seed, group_accuracy(second).by_seed),
        flipped={uid: differences[uid] for uid in flipped},
    )


def over_seeds(first: Sequence[float], second: Sequence[float]) -> OverSeeds | None:
    """Welch's test of two samples of accuracies; None where it says nothing: a sample of one, or no variance at all."""
    if min(len(first), len(second)) < 2 or len(set(first)) == len(set(second)) == 1:
        return None
    with warnings.catch_warnings():
        # A group whose seeds all come to one accuracy has no variance, which is no loss of precision here.
        warnings.filterwarnings("ignore", message="Precision loss occurred", category=RuntimeWarning)
        test = ttest_ind(second, first, equal_var=False)
    interval = test.confidence_interval(0.95)
    return OverSeeds(ci95=(float(interval.low), float(interval.high)), p_value=float(test.pvalue))


def mean_shares(models: Sequence[Shares]) -> dict[str, float]:
    """[uid] -> mean share over the models, in the first model's order. Raises ValueError as group_accuracy does."""
    if not models or not models[0]:
        raise ValueError("a group needs a model, and a model items")
    for model in models[1:]:
        _require_same_items(models[0], model)
    # fsum: equal shares in another order must not differ by rounding, which would count as a flipped item.
    return {uid: math.fsum(model[uid] for model in models) / len(models) for uid in models[0]}


def _require_same_items(one: Shares, other: Shares) -> None:
    if strangers := one.keys() ^ other.keys():
        raise ValueError(
            f"the items differ, {len(one)} and {len(other)}, {len(strangers)} of them in one alone, "
            f"such as {min(strangers)}"
        )


def holm(p_values: Sequence[float]) -> list[float]:
    """p-values of several tests, adjusted so that the chance of any false alarm stays as small as for one (Holm,
    Scandinavian Journal of Statistics 6, 1979)."""
    adjusted = [0.0] * len(p_values)
    largest = 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[place]))
        adjusted[place] = largest
    return adjusted
