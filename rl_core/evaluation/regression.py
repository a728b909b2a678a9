"""Has a baseline become worse than it was, or than was published?"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from rl_core.evaluation.comparison import Comparison, compare_groups
from rl_core.evaluation.items import EvaluationItem
from rl_core.evaluation.reproduction import Reproduction
from rl_core.evaluation.result import item_shares
from rl_core.evaluation.statistics import SIGNIFICANT

Standing = Literal["good", "regressed", "not comparable"]


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


def standing_of(reproduction: Reproduction, drifts: Sequence[Drift]) -> Standing:
    """What a run says of its baseline.

    "regressed": below the published band, or significantly worse than one of the earlier good runs that it was compared
    with. "not comparable": a number was published and nothing can be said of it. A baseline without a published number
    is judged by its good runs alone.
    """
    if reproduction.outcome == "below" or any(drift.is_drop for drift in drifts):
        return "regressed"
    is_unknown = reproduction.outcome == "not comparable" and reproduction.published is not None
    return "not comparable" if is_unknown else "good"
