"""Whether a newly trained model takes the place of the best one so far. The decision is on two models and these items;
it says nothing of the ways in which they were trained, which another seed may rank otherwise."""

from collections.abc import Mapping
from dataclasses import dataclass

from rl_core.evaluation.comparison import Comparison, compare_answers
from rl_core.evaluation.statistics import SIGNIFICANT


@dataclass(frozen=True, kw_only=True, slots=True)
class ChampionDecision:
    """Whether a candidate model becomes the champion.

    Attributes:
        is_champion: Whether the candidate has significantly more right answers than the current model.
        comparison: The current model and the candidate, item by item; None where the two cannot be compared.
        reason: One sentence for people.
    """

    is_champion: bool
    comparison: Comparison | None
    reason: str


def decide_champion(name: str, current: Mapping[str, bool], candidate: Mapping[str, bool]) -> ChampionDecision:
    """The candidate becomes the champion when it is right more often than the current model and McNemar's p-value is
    below SIGNIFICANT. It does not where the two cannot be compared.

    Args:
        name: What people call the current model.
        current: Whether the current model's response is right, by the item's uid.
        candidate: Whether the candidate's response is right, by the item's uid.
    """
    try:
        comparison = compare_answers(current, candidate)
    except ValueError as error:
        return not_comparable(name, str(error))
    is_better = comparison.difference > 0 and comparison.p_value < SIGNIFICANT
    reason = (
        f"{'' if is_better else 'not '}significantly more right answers than {name}: {len(comparison.gained)} answers "
        f"gained, {len(comparison.lost)} lost of {comparison.n}, McNemar p = {comparison.p_value:.3g}"
    )
    return ChampionDecision(is_champion=is_better, comparison=comparison, reason=reason)


def not_comparable(name: str, why: str) -> ChampionDecision:
    """The decision where the candidate cannot be compared with the current model called `name`."""
    return ChampionDecision(is_champion=False, comparison=None, reason=f"not comparable with {name}: {why}")
