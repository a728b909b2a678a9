"""Whether a newly trained model takes the place of the best one so far."""

from collections.abc import Mapping
from dataclasses import dataclass

from rl_core.evaluation.comparison import Comparison, compare_answers

SIGNIFICANT = 0.05
"""A McNemar p-value below it counts as an improvement that is more than luck."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Challenge:
    """How a contender did against a rival on the same items.

    Attributes:
        rival: Name of the rival.
        wins: Whether it is significantly better.
        comparison: Item by item; None where the two cannot be compared.
        reason: One sentence for people.
    """

    rival: str
    wins: bool
    comparison: Comparison | None
    reason: str


def challenge(rival: str, rival_answers: Mapping[str, bool], answers: Mapping[str, bool]) -> Challenge:
    """The contender wins when it is right more often and McNemar's p-value is below SIGNIFICANT.

    Args:
        rival: Name of the rival.
        rival_answers: Whether the rival's answer is right, by the item's uid.
        answers: The contender's.
    """
    try:
        comparison = compare_answers(rival_answers, answers)
    except ValueError as error:
        return not_comparable(rival, str(error))
    wins = comparison.difference > 0 and comparison.p_value < SIGNIFICANT
    verdict = "better than" if wins else "not significantly better than"
    reason = (
        f"{verdict} {rival}: {len(comparison.gained)} answers gained, {len(comparison.lost)} lost "
        f"of {comparison.n}, McNemar p = {comparison.p_value:.3g}"
    )
    return Challenge(rival=rival, wins=wins, comparison=comparison, reason=reason)


def not_comparable(rival: str, why: str) -> Challenge:
    """What cannot be compared wins nothing."""
    return Challenge(rival=rival, wins=False, comparison=None, reason=f"not comparable with {rival}: {why}")
