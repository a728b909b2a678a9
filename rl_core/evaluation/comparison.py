"""Two models on the same items."""

from collections.abc import Mapping, Sequence, Set
from dataclasses import asdict, dataclass
from typing import Any

from rl_core.evaluation.items import EvaluationItem
from rl_core.evaluation.statistics import Interval, PairedCounts, mcnemar, paired_difference_interval


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """Base and trained model, item by item.

    Attributes:
        n: Items.
        both: Items that both answered rightly.
        only_base: Items that the base model alone answered rightly.
        only_trained: Items that the trained model alone answered rightly.
        neither: Items that both answered wrongly.
        difference: Accuracy of the trained model minus that of the base.
        difference_ci95: 95 % interval of the difference (statistics.paired_difference_interval).
        p_value: Exact McNemar p-value that both are equally good.
        gained: uids of `only_trained`, in the items' order.
        lost: uids of `only_base`, in the items' order.
    """

    n: int
    both: int
    only_base: int
    only_trained: int
    neither: int
    difference: float
    difference_ci95: Interval
    p_value: float
    gained: tuple[str, ...]
    lost: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain values; `from_json` of them gives an equal comparison."""
        return asdict(self) | {name: list(getattr(self, name)) for name in _TUPLES}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "Comparison":
        """The comparison of which `values` is the JSON."""
        return cls(**(dict(values) | {name: tuple(values[name]) for name in _TUPLES}))


_TUPLES = ("difference_ci95", "gained", "lost")


def compare(base: Sequence[EvaluationItem], trained: Sequence[EvaluationItem]) -> Comparison:
    """Pair the verdicts of two models by uid; meant for the greedy mode, which has one response an item.

    Raises:
        ValueError: there are no items, an item has several responses, or the two sets of items differ.
    """
    pairs = pair_items(base, trained)
    return compare_answers({one.uid: one.verdict for one, _ in pairs}, {other.uid: other.verdict for _, other in pairs})


def compare_answers(base: Mapping[str, bool], trained: Mapping[str, bool]) -> Comparison:
    """The same from the verdicts alone.

    Args:
        base: Whether an answer is right, by uid; `gained` and `lost` have its order.
        trained: Likewise.

    Raises:
        ValueError: there are no items, or the two sets of items differ.
    """
    if (strangers := base.keys() ^ trained.keys()) or not base:
        raise ValueError(_differ(len(base), len(trained), strangers))
    gained = tuple(uid for uid, is_right in base.items() if trained[uid] and not is_right)
    lost = tuple(uid for uid, is_right in base.items() if is_right and not trained[uid])
    both = sum(is_right and trained[uid] for uid, is_right in base.items())
    counts = PairedCounts(
        both=both, only_first=len(lost), only_second=len(gained), neither=len(base) - both - len(lost) - len(gained)
    )
    return Comparison(
        n=counts.n,
        both=counts.both,
        only_base=counts.only_first,
        only_trained=counts.only_second,
        neither=counts.neither,
        difference=(counts.only_second - counts.only_first) / counts.n,
        difference_ci95=paired_difference_interval(counts),
        p_value=mcnemar(counts.only_first, counts.only_second),
        gained=gained,
        lost=lost,
    )


def pair_items(
    base: Sequence[EvaluationItem], trained: Sequence[EvaluationItem]
) -> list[tuple[EvaluationItem, EvaluationItem]]:
    """(base item, trained item) of each uid, in the base items' order.

    Raises:
        ValueError: there are no items, an item has several responses, or the two sets of items differ.
    """
    by_uid = {item.uid: item for item in trained}
    if not base or len({item.uid for item in base}) != len(base) or len(by_uid) != len(trained):
        raise ValueError("a paired comparison needs items with one response each: compare the greedy mode")
    if strangers := {item.uid for item in base} ^ by_uid.keys():
        raise ValueError(_differ(len(base), len(trained), strangers))
    return [(item, by_uid[item.uid]) for item in base]


def _differ(first: int, second: int, strangers: Set[str]) -> str:
    return (
        f"the two evaluations are of different items: {first} and {second}, "
        f"{len(strangers)} of them in one alone{f', such as {min(strangers)}' if strangers else ''}"
    )
