"""Two verdicts of one protocol on the same items."""

from collections.abc import Sequence
from dataclasses import dataclass

from rl_core.evaluation.bootstrap import bootstrap_interval, sign_flip_p_value
from rl_core.evaluation.items import EvaluationItem
from rl_core.evaluation.result import item_shares
from rl_core.evaluation.statistics import Interval, mcnemar
from rl_core.evaluation.verdict import Verdict


@dataclass(frozen=True, kw_only=True, slots=True)
class VerdictComparison:
    """The second verdict against the first, item by item.

    Attributes:
        n: Items.
        first, second: Accuracies.
        difference: The second minus the first.
        bootstrap95: 95 % interval of the difference, by resampling items.
        p_value: That both are equally good: McNemar's exact one with one response an item, else that of flipped signs.
        gained, lost: uids of items that the second answers more often right, and less often.
    """

    n: int
    first: float
    second: float
    difference: float
    bootstrap95: Interval
    p_value: float
    gained: tuple[str, ...]
    lost: tuple[str, ...]


def compare_verdicts(
    first: tuple[Verdict, Sequence[EvaluationItem]], second: tuple[Verdict, Sequence[EvaluationItem]]
) -> VerdictComparison:
    """Pair the items by uid.

    Raises:
        ValueError: the protocols differ (the parts that do are named), or the items do.
    """
    if differing := _differing(first[0], second[0]):
        raise ValueError(f"not comparable: the two verdicts differ in {', '.join(differing)} of their protocols")
    one, other = item_shares(first[1]), item_shares(second[1])
    if strangers := one.keys() ^ other.keys():
        raise ValueError(
            f"not comparable: the items differ, {len(one)} and {len(other)}, such as {min(strangers)} in one alone"
        )
    differences = {uid: other[uid] - one[uid] for uid in one}
    gained = tuple(uid for uid, difference in differences.items() if difference > 0)
    lost = tuple(uid for uid, difference in differences.items() if difference < 0)
    is_single = len(first[1]) == len(second[1]) == len(one)
    return VerdictComparison(
        n=len(one),
        first=first[0].result.accuracy,
        second=second[0].result.accuracy,
        difference=second[0].result.accuracy - first[0].result.accuracy,
        bootstrap95=bootstrap_interval(list(differences.values())),
        p_value=mcnemar(len(lost), len(gained)) if is_single else sign_flip_p_value(list(differences.values())),
        gained=gained,
        lost=lost,
    )


def _differing(first: Verdict, second: Verdict) -> list[str]:
    return sorted(
        key
        for key in first.protocol.keys() | second.protocol.keys()
        if first.protocol.get(key) != second.protocol.get(key)
    )
