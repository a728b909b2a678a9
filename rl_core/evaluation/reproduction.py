"""Does a run reproduce a published number?"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from rl_core.config.published import PublishedConfig
from rl_core.evaluation.result import EvaluationResult
from rl_core.evaluation.statistics import Interval

Outcome = Literal["reproduced", "above", "below", "not comparable"]

_Z95 = 1.959963984540054


@dataclass(frozen=True, kw_only=True, slots=True)
class Reproduction:
    """What a run says of a published number.

    Attributes:
        outcome: In words.
        accuracy: The run's, after training.
        ci95: Its 95 % interval.
        accuracy_before: Accuracy of the model that training started from.
        published: The published accuracy; None where there is none.
        band: Accuracies that reproduce it; None likewise.
        obstacles: Why the two do not compare; empty when they do.
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
    """How far a faithful run may lie from a published accuracy: 1.96 standard errors of a share measured once on
    `items` items, and the digits that were not published."""
    return _Z95 * math.sqrt(accuracy * (1 - accuracy) / items) + rounding


def published_band(published: PublishedConfig) -> Interval | None:
    """Accuracies that reproduce the published one; None where none was published, or not on how many items."""
    return None if published.accuracy is None else _band(published.accuracy, published)


def judge_reproduction(
    published: PublishedConfig, *, base: EvaluationResult, trained: EvaluationResult, obstacles: Sequence[str] = ()
) -> Reproduction:
    """Compare a run's evaluation with the published numbers.

    Args:
        published: What the baseline is to reproduce.
        base: The evaluation of the model that training started from: where the publication tells its accuracy too and
            ours lies outside that band, the harnesses differ, and the trained accuracies do not compare.
        trained: The evaluation of the trained model.
        obstacles: What else stands between the two, a sentence each.
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
            f"(tolerated: {band[0]:.3f} to {band[1]:.3f}): the two do not measure alike"
        )
    return found


def _band(accuracy: float, published: PublishedConfig) -> Interval | None:
    if published.items is None:
        return None
    half = tolerance(accuracy, items=published.items, rounding=published.rounding)
    return max(0.0, accuracy - half), min(1.0, accuracy + half)
