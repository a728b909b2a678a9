"""What a run of a baseline says: does it reproduce the published number, and has the baseline become worse since an
earlier run?"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from rl_core.config.published import PublishedConfig
from rl_core.evaluation.comparison import Comparison, compare_groups
from rl_core.evaluation.items import EvaluationItem
from rl_core.evaluation.result import EvaluationResult, item_shares
from rl_core.evaluation.statistics import SIGNIFICANT, Interval

Outcome = Literal["reproduced", "above", "below", "not comparable"]
"""What a run says of the published number."""

Status = Literal["good", "regressed", "not comparable"]
"""What a run says of its baseline, by the published number and by the earlier good runs."""

_Z95 = 1.959963984540054


@dataclass(frozen=True, kw_only=True, slots=True)
class Reproduction:
    """What a run says of a published number.

    Attributes:
        outcome: Whether the run reproduces the number.
        accuracy: Accuracy of the trained model.
        ci95: 95 % interval of `accuracy`.
        accuracy_before: Accuracy of the model that training started from.
        published: The published accuracy; None where none was published.
        band: Accuracies that reproduce `published`; None where none was published.
        obstacles: Why the two accuracies cannot be compared, a sentence each; empty where they can.
    """

    outcome: Outcome
    accuracy: float
    ci95: Interval
    accuracy_before: float
    published: float | None
    band: Interval | None
    obstacles: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


def tolerance(accuracy: float, *, items: int, rounding: float) -> float:
    """How far a faithful run may lie from a published accuracy: 1.96 standard errors of a share that was measured once
    on `items` items, and the rounding of the published digits."""
    return _Z95 * math.sqrt(accuracy * (1 - accuracy) / items) + rounding


def published_band(published: PublishedConfig) -> Interval | None:
    """Accuracies that reproduce the published one; None where no accuracy was published, or no number of items."""
    return None if published.accuracy is None else _band(published.accuracy, published)


def judge_reproduction(
    published: PublishedConfig, *, base: EvaluationResult, trained: EvaluationResult, obstacles: Sequence[str] = ()
) -> Reproduction:
    """Compare a run's evaluation with the published numbers.

    Args:
        published: What the baseline is to reproduce.
        base: The evaluation of the model that training started from. Where the accuracy of this model was published too
            and ours lies outside its band, the two evaluations differ, and the trained accuracies cannot be compared.
        trained: The evaluation of the trained model.
        obstacles: Other reasons why the accuracies cannot be compared, a sentence each.
    """
    band = published_band(published)
    reasons = [*obstacles, *_obstacles(published, base, trained)]
    return Reproduction(
        outcome="not comparable" if reasons or band is None else _outcome(published, trained.accuracy, band),
        accuracy=trained.accuracy,
        ci95=trained.ci95,
        accuracy_before=base.accuracy,
        published=published.accuracy,
        band=band,
        obstacles=tuple(reasons),
    )


def _outcome(published: PublishedConfig, accuracy: float, band: Interval) -> Outcome:
    low, high = band
    if accuracy < low:
        return "below"
    return "above" if accuracy > high and not published.at_least else "reproduced"


def _obstacles(published: PublishedConfig, base: EvaluationResult, trained: EvaluationResult) -> list[str]:
    found = []
    if published.accuracy is None:
        found.append("the reference published no number")
    if published.items not in (None, trained.n):
        found.append(f"{trained.n} items were evaluated, the published number counts {published.items}")
    before = published.accuracy_before
    band = None if before is None else _band(before, published)
    if band is not None and not band[0] <= base.accuracy <= band[1]:
        found.append(
            f"before training the accuracy is {base.accuracy:.3f} here, {before:.2f} in the publication "
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
    """A run of a baseline compared with an earlier run of the same recipe.

    Attributes:
        earlier: Name of the earlier run.
        comparison: The earlier run first, the later one second. Where several baselines are judged together, its
            p-value is adjusted for their number.
    """

    earlier: str
    comparison: Comparison

    @property
    def is_drop(self) -> bool:
        """Whether the later run is significantly worse."""
        return self.comparison.difference < 0 and self.comparison.p_value < SIGNIFICANT

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        found = self.comparison
        return {
            "earlier": self.earlier,
            "n": found.n,
            "difference": found.difference,
            "ci95": list(found.ci95),
            "p_value": found.p_value,
        }


def drift_from(earlier: str, before: Sequence[EvaluationItem], now: Sequence[EvaluationItem]) -> Drift:
    """Compare two evaluations of one mode.

    Args:
        earlier: Name of the earlier run.
        before: The earlier run's items.
        now: The later run's items.

    Raises:
        ValueError: the two evaluations are of different items.
    """
    return Drift(earlier=earlier, comparison=compare_groups([item_shares(before)], [item_shares(now)]))


def baseline_status(reproduction: Reproduction, drifts: Sequence[Drift]) -> Status:
    """The status of a baseline after a run.

    It is "regressed" where the run is below the published band, or significantly worse than one of the earlier good
    runs that it was compared with, and "not comparable" where a number was published and nothing can be said of it. A
    baseline without a published number is judged by its good runs alone.
    """
    if reproduction.outcome == "below" or any(drift.is_drop for drift in drifts):
        return "regressed"
    is_unknown = reproduction.outcome == "not comparable" and reproduction.published is not None
    return "not comparable" if is_unknown else "good"


def stored_status(record: Mapping[str, Any]) -> str | None:
    """The status in a stored result of a baseline; None where it has none. Earlier versions wrote it as `standing`."""
    status = record.get("status", record.get("standing"))
    return None if status is None else f"{status}"
