"""What the runs of a baseline say: do they reproduce the published number, and has it become worse since earlier
runs?"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from rl_core.config.stages import PublishedConfig
from rl_core.evaluation.comparison import Comparison, GroupAccuracy, Shares, compare_groups
from rl_core.evaluation.statistics import SIGNIFICANT, Interval, Z

Outcome = Literal["reproduced", "above", "below", "undecided", "not comparable"]
"""What the runs say about the published number."""

Status = Literal["good", "regressed", "undecided", "not comparable"]
"""What the runs say about their baseline, by the published number and by the earlier good runs."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Reproduction:
    """What the runs of a baseline say about a published number. Both accuracies are means over `seeds`.

    Attributes:
        published, band: The published accuracy, and the accuracies that reproduce it; None where none was published.
        obstacles: Why the accuracies cannot be compared, a sentence each; empty where they can.
    """

    outcome: Outcome
    seeds: tuple[int, ...]
    trained: GroupAccuracy
    accuracy_before: float
    published: float | None
    band: Interval | None
    obstacles: tuple[str, ...]

    @property
    def is_below(self) -> bool:
        """Whether the mean accuracy is below the band, whatever the seeds say about it."""
        return self.band is not None and self.trained.mean < self.band[0]

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "outcome": self.outcome,
            "seeds": list(self.seeds),
            "accuracy": self.trained.mean,
            "accuracy_by_seed": list(self.trained.by_seed),
            "ci95": list(self.trained.ci95),
            "ci95_over_seeds": self.trained.over_seeds and list(self.trained.over_seeds),
            "accuracy_before": self.accuracy_before,
            "published": self.published,
            "band": self.band and list(self.band),
            "obstacles": list(self.obstacles),
        }


def tolerance(accuracy: float, *, items: int, rounding: float) -> float:
    """How far a faithful run may lie from a published accuracy: 1.96 standard errors of a share that was measured once
    on `items` items, and the rounding of the published digits."""
    return Z * math.sqrt(accuracy * (1 - accuracy) / items) + rounding


def published_band(published: PublishedConfig) -> Interval | None:
    """Accuracies that reproduce the published one; None where no accuracy was published, or no number of items."""
    return None if published.accuracy is None else _band(published.accuracy, published)


def judge_reproduction(
    published: PublishedConfig,
    *,
    seeds: Sequence[int],
    before: float,
    trained: GroupAccuracy,
    obstacles: Sequence[str] = (),
) -> Reproduction:
    """Compare the mean accuracy of a baseline's runs with the published one. Where several seeds were run and their
    mean lies outside the band, the outcome is "above" or "below" only if the whole 95 % interval over seeds lies there,
    and else "undecided". Where the accuracy before training was published too and `before` lies outside its band, the
    two evaluations differ, and nothing can be compared; `obstacles` are other reasons."""
    band = published_band(published)
    reasons = [*obstacles, *_obstacles(published, before, trained)]
    return Reproduction(
        outcome="not comparable" if reasons or band is None else _outcome(published, trained, band),
        seeds=tuple(seeds),
        trained=trained,
        accuracy_before=before,
        published=published.accuracy,
        band=band,
        obstacles=tuple(reasons),
    )


def _outcome(published: PublishedConfig, trained: GroupAccuracy, band: Interval) -> Outcome:
    by_mean = _side_of_band(published, trained.mean, band)
    ends = {_side_of_band(published, end, band) for end in trained.over_seeds or ()}
    return by_mean if by_mean == "reproduced" or ends <= {by_mean} else "undecided"


def _side_of_band(published: PublishedConfig, accuracy: float, band: Interval) -> Outcome:
    low, high = band
    if accuracy < low:
        return "below"
    return "above" if accuracy > high and not published.at_least else "reproduced"


def _obstacles(published: PublishedConfig, before: float, trained: GroupAccuracy) -> list[str]:
    found = []
    if published.accuracy is None:
        found.append("the reference published no number")
    if published.items not in (None, trained.n):
        found.append(f"{trained.n} items were evaluated, the published number counts {published.items}")
    expected = published.accuracy_before
    band = None if expected is None else _band(expected, published)
    if band is not None and not band[0] <= before <= band[1]:
        found.append(
            f"before training the accuracy is {before:.3f} here, {expected:.2f} in the publication "
            f"(tolerated: {band[0]:.3f} to {band[1]:.3f}): the two evaluations differ"
        )
    return found


def _band(accuracy: float, published: PublishedConfig) -> Interval | None:
    if published.items is None:
        return None
    half = tolerance(accuracy, items=published.items, rounding=published.rounding)
    return max(0.0, accuracy - half), min(1.0, accuracy + half)


@dataclass(frozen=True, kw_only=True, slots=True)
class Drift:
    """The runs of a baseline compared with earlier runs of the same recipe, those first. The seeds decide where both
    sides have several ones that differ, and else the items. Where several baselines are judged together, the p-value is
    adjusted for their number."""

    earlier: tuple[str, ...]
    comparison: Comparison
    p_value: float

    @property
    def ci95(self) -> Interval:
        """95 % interval of the difference, over seeds or over items."""
        return (self.comparison.over_seeds or self.comparison).ci95

    @property
    def is_drop(self) -> bool:
        """Whether the later runs are significantly worse."""
        return self.comparison.difference < 0 and self.p_value < SIGNIFICANT

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        found = self.comparison
        return {
            "earlier": list(self.earlier),
            "n": found.n,
            "seeds": list(found.seeds),
            "difference": found.difference,
            "over": "items" if found.over_seeds is None else "seeds",
            "ci95": list(self.ci95),
            "p_value": self.p_value,
        }


def drift_from(earlier: Mapping[str, Shares], now: Sequence[Shares]) -> Drift:
    """Compare the later models with earlier runs' ([name] -> shares). Raises ValueError when the items differ."""
    found = compare_groups(list(earlier.values()), now)
    return Drift(earlier=tuple(earlier), comparison=found, p_value=(found.over_seeds or found).p_value)


def baseline_status(reproduction: Reproduction, drifts: Sequence[Drift]) -> Status:
    """The status of a baseline after its runs: "regressed" where they are below the published band, or significantly
    worse than a group of earlier good runs; "not comparable" where nothing can be said about a published number;
    "undecided" where the seeds do not tell whether it is below the band. A baseline without a published number is
    judged by its good runs alone."""
    if reproduction.outcome == "below" or any(drift.is_drop for drift in drifts):
        return "regressed"
    if reproduction.outcome == "not comparable" and reproduction.published is not None:
        return "not comparable"
    return "undecided" if reproduction.outcome == "undecided" and reproduction.is_below else "good"
