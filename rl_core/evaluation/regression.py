"""Has a baseline become worse than it was, or than was published?"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from rl_core.evaluation.champion import SIGNIFICANT
from rl_core.evaluation.group_comparison import compare_groups
from rl_core.evaluation.items import EvaluationItem
from rl_core.evaluation.reproduction import Reproduction
from rl_core.evaluation.result import item_shares
from rl_core.evaluation.statistics import Interval

Standing = Literal["good", "regressed", "not comparable"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Drift:
    """A run against an earlier one of the same recipe, on the same items.

    Attributes:
        earlier: Name of the earlier run.
        n: Items.
        difference: Accuracy minus the earlier run's.
        ci95: 95 % interval of the difference over items, by bootstrap.
        p_value: That both are equally good (group_comparison.compare_groups); where several baselines are judged
            together, adjusted for their number.
    """

    earlier: str
    n: int
    difference: float
    ci95: Interval
    p_value: float

    @property
    def is_drop(self) -> bool:
        """Whether the later run is significantly worse."""
        return self.difference < 0 and self.p_value < SIGNIFICANT

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


def drift_from(earlier: str, before: Sequence[EvaluationItem], now: Sequence[EvaluationItem]) -> Drift:
    """Compare two evaluations of one mode.

    Args:
        earlier: Name of the earlier run.
        before: Its items.
        now: The later run's.

    Raises:
        ValueError: the two are of different items.
    """
    found = compare_groups([item_shares(before)], [item_shares(now)])
    return Drift(earlier=earlier, n=found.n, difference=found.difference, ci95=found.ci95, p_value=found.p_value)


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
