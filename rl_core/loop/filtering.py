"""Which of the drawn groups are learned from: the filter of `algorithm.online_filtering` on their scores."""

from collections.abc import Mapping, Sequence

from rl_core.algorithms.group_filter import GroupFilterSection, GroupScores, group_scores
from rl_core.types import Group, RolloutKey, Score


class TooFewInformativeGroups(RuntimeError):
    """Group filtering has not filled the batch within `algorithm.online_filtering.max_try_make_batch` draws."""


def informative_groups(
    groups: Sequence[Group], scores: Mapping[RolloutKey, Score], filtering: GroupFilterSection
) -> list[Group]:
    """Those of `groups`, whose rollouts all have a score, that pass the filter.

    Raises:
        ValueError: the reward has no component of the name that the filter looks at.
    """
    return [group for group in groups if filtering.keeps(_scores_of(group, scores, filtering.component))]


def _scores_of(group: Group, scores: Mapping[RolloutKey, Score], needed: str | None) -> GroupScores:
    components = [scores[rollout.key].components for rollout in group.rollouts]
    missing = [found for found in components if needed is not None and needed not in found]
    if missing:
        raise ValueError(
            f"algorithm.online_filtering.filter_key is {needed!r}, and the reward gave {sorted(missing[0])} for a "
            f"response to prompt {group.prompt.uid}: name one of these"
        )
    return group_scores(components)


def too_few(*, found: int, wanted: int, drawn: int, filtering: GroupFilterSection) -> TooFewInformativeGroups:
    """The error of a step whose last allowed draw has found `found` of `wanted` groups among `drawn` prompts."""
    return TooFewInformativeGroups(
        f"{filtering.max_try_make_batch} draws (algorithm.online_filtering.max_try_make_batch) of {drawn} different "
        f"prompts gave {found} of {wanted} groups {filtering.wants}; widen the filter, give easier or harder prompts, "
        f"lower data.rollout_batch_size, or allow more or larger draws"
    )
