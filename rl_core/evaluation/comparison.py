"""Two models, or two groups of models, on the same items. A group is one way of training, repeated with other seeds.
Over items the question is whether these trained models are better; over seeds, whether the way of training is, which
few seeds answer weakly, however many items there are."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest
from statistics import fmean, stdev

from rl_core.evaluation.items import EvaluationItem
from rl_core.evaluation.statistics import (
    Interval,
    MeanDifference,
    PairedCounts,
    bootstrap_interval,
    clustered_wilson_interval,
    mcnemar,
    mean_interval,
    mean_of_known,
    paired_difference_interval,
    sign_flip_p_value,
    welch_test,
)
from rl_core.randomness import keyed_seed

ItemPair = tuple[EvaluationItem, EvaluationItem]
"""What the first model and the second answered to an item."""

Shares = Mapping[str, float | None]
"""[uid] -> share of a model's responses to the item that are right; None where none of them has a score."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """The second model or group of models against the first one, over the items of which both have a score. `ci95` and
    `p_value` are over items.

    Attributes:
        flipped: [uid] -> the second share of right responses minus the first, of the items where they differ, the
            largest difference first.
        counts: None where a side has several responses to an item.
        seeds: Number of models on each side.
        over_seeds: None where a side has one seed only, or where no accuracy varies with the seed.
    """

    n: int
    first: float
    second: float
    difference: float
    ci95: Interval
    p_value: float
    flipped: Mapping[str, float]
    counts: PairedCounts | None = None
    seeds: tuple[int, int] = (1, 1)
    over_seeds: MeanDifference | None = None

    @property
    def has_one_seed(self) -> bool:
        """Whether a side has one seed only, so that nothing is known over seeds."""
        return min(self.seeds) == 1

    @property
    def gained(self) -> tuple[str, ...]:
        """uids of the items that the second answers rightly more often."""
        return tuple(uid for uid, difference in self.flipped.items() if difference > 0)

    @property
    def lost(self) -> tuple[str, ...]:
        """uids of the items that the second answers rightly less often."""
        return tuple(uid for uid, difference in self.flipped.items() if difference < 0)


def compare_items(first: Sequence[EvaluationItem], second: Sequence[EvaluationItem]) -> Comparison:
    """Compare two models that gave one response to each item. Raises ValueError as `pair_items` does."""
    pairs = pair_items(first, second)
    return compare_answers(
        {one.uid: one.is_right for one, _ in pairs}, {other.uid: other.is_right for _, other in pairs}
    )


def compare_answers(first: Mapping[str, bool | None], second: Mapping[str, bool | None]) -> Comparison:
    """Compare two models that gave one response to each item, by [uid] -> whether it is right, None without a score,
    with Newcombe's interval and McNemar's exact test. Raises ValueError when no item has two scores, or the two sets of
    items differ."""
    pairs = _pairs(first, second)
    differences = {uid: other - one for uid, (one, other) in pairs.items()}
    values, both = list(differences.values()), [one for one, other in pairs.values() if one == other]
    counts = PairedCounts(
        both=both.count(1), only_first=values.count(-1), only_second=values.count(1), neither=both.count(0)
    )
    return Comparison(
        n=counts.n,
        first=fmean(one for one, _ in pairs.values()),
        second=fmean(other for _, other in pairs.values()),
        difference=fmean(values),
        ci95=paired_difference_interval(counts),
        p_value=mcnemar(counts.only_first, counts.only_second),
        flipped=_flipped(differences),
        counts=counts,
    )


def compare_groups(first: Sequence[Shares], second: Sequence[Shares]) -> Comparison:
    """Compare two groups of models, each with any number of responses to an item, by resampling items
    (bootstrap_interval, sign_flip_p_value), and by Welch's test over the seeds. Raises ValueError when the models
    answered different items, no item has a score on both sides, or a group has no model."""
    pairs = _pairs(mean_shares(first), mean_shares(second))
    differences = {uid: other - one for uid, (one, other) in pairs.items()}
    values = list(differences.values())
    return Comparison(
        n=len(values),
        first=fmean(one for one, _ in pairs.values()),
        second=fmean(other for _, other in pairs.values()),
        difference=fmean(values),
        ci95=bootstrap_interval(values),
        p_value=sign_flip_p_value(values),
        flipped=_flipped(differences),
        seeds=(len(first), len(second)),
        over_seeds=welch_test(group_accuracy(first).by_seed, group_accuracy(second).by_seed),
    )


def pair_items(first: Sequence[EvaluationItem], second: Sequence[EvaluationItem]) -> list[ItemPair]:
    """The items of each uid, in the order of the first model's. Raises ValueError when an item has several responses,
    or the two sets of items differ."""
    by_uid = {item.uid: item for item in second}
    if not first or len({item.uid for item in first}) != len(first) or len(by_uid) != len(second):
        raise ValueError("a paired comparison needs items with one response each: compare the greedy mode")
    _require_same_items({item.uid: item for item in first}, by_uid)
    return [(item, by_uid[item.uid]) for item in first]


def pick_gallery(base: Sequence[EvaluationItem], trained: Sequence[EvaluationItem], *, count: int) -> list[ItemPair]:
    """Choose at most `count` items. Two thirds are flipped ones, lost and gained in turn; the rest are items that both
    models answered wrongly and rightly, in turn. Where there are too few of one kind, another takes their places; items
    without a score are not shown. Which are chosen depends on uids alone, so that two runs show the same. Raises
    ValueError as `pair_items` does."""
    pairs = sorted(pair_items(base, trained), key=lambda pair: (keyed_seed(0, "gallery", pair[0].uid), pair[0].uid))
    kinds: dict[tuple[bool | None, bool | None], list[ItemPair]] = {}
    for one, other in pairs:
        kinds.setdefault((one.is_right, other.is_right), []).append((one, other))
    flips = _by_turns(kinds.get((True, False), []), kinds.get((False, True), []))
    steady = _by_turns(kinds.get((False, False), []), kinds.get((True, True), []))
    return [*flips[: max(count - count // 3, count - len(steady))], *steady][:count]


def _by_turns(*kinds: Sequence[ItemPair]) -> list[ItemPair]:
    return [pair for pair in chain.from_iterable(zip_longest(*kinds)) if pair is not None]


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupAccuracy:
    """How well the models of a group do: each of them, and the mean over models and items with its interval over
    items."""

    by_seed: tuple[float, ...]
    n: int
    mean: float
    ci95: Interval

    @property
    def sd(self) -> float | None:
        """Standard deviation between the models; None for one model."""
        return stdev(self.by_seed) if len(self.by_seed) > 1 else None

    @property
    def over_seeds(self) -> Interval | None:
        """Interval of the mean over seeds, as far as it lies within 0 .. 1; None for one model."""
        found = mean_interval(self.by_seed)
        return found and (max(0.0, found[0]), min(1.0, found[1]))


def group_accuracy(models: Sequence[Shares], *, samples_per_item: float = 1) -> GroupAccuracy:
    """Sum up a group: one mapping for each seed, and how many responses to an item each model gave. Raises ValueError
    when the models have different items, or one has no score."""
    shares = _known(mean_shares(models))
    return GroupAccuracy(
        by_seed=tuple(fmean(_known(model)) for model in models),
        n=len(shares),
        mean=fmean(shares),
        ci95=clustered_wilson_interval(shares, samples_per_item=samples_per_item * len(models)),
    )


def mean_shares(models: Sequence[Shares]) -> dict[str, float | None]:
    """[uid] -> mean share over the models that have one. Raises ValueError when they have different items or none."""
    if not models:
        raise ValueError("a group needs at least one model")
    for model in models:
        _require_same_items(models[0], model)
    return {uid: mean_of_known(model[uid] for model in models) for uid in models[0]}


def _known(shares: Shares) -> list[float]:
    return [share for share in shares.values() if share is not None]


def _pairs(first: Shares, second: Shares) -> dict[str, tuple[float, float]]:
    """[uid] -> both shares, of the items that have two."""
    _require_same_items(first, second)
    both = ((uid, first[uid], second[uid]) for uid in first)
    pairs = {uid: (one, other) for uid, one, other in both if one is not None and other is not None}
    if not pairs:
        raise ValueError(f"none of {len(first)} items has a score on both sides")
    return pairs


def _flipped(differences: Mapping[str, float]) -> dict[str, float]:
    uids = sorted((uid for uid in differences if differences[uid]), key=lambda uid: (-abs(differences[uid]), uid))
    return {uid: differences[uid] for uid in uids}


def _require_same_items(first: Mapping[str, object], second: Mapping[str, object]) -> None:
    if not first:
        raise ValueError("a comparison needs at least one item")
    if strangers := first.keys() ^ second.keys():
        raise ValueError(
            f"the items differ: {len(first)} and {len(second)} items, {len(strangers)} of them on one side only, "
            f"such as {min(strangers)}"
        )
