"""Group filtering: which groups are learned from, by their scores (`algorithm.online_filtering`)."""

from collections.abc import Mapping, Sequence

from rl_core.algorithms.group_filter import GroupFilterSection, GroupScores, group_scores
from rl_core.types import Group, RolloutKey, Score


class TooFewInformativeGroups(RuntimeError):
    """Group filtering did not fill the batch within `algorithm.online_filtering.max_try_make_batch` draws."""


def informative_groups(
    groups: Sequence[Group], scores: Mapping[RolloutKey, Score], filtering: GroupFilterSection
) -> list[Group]:
    """The groups that pass the filter. All their rollouts must have a score.

    Raises:
        ValueError: the reward does not have the component that the filter uses.
    """
    return [group for group in groups if filtering.keeps(_scores_of(group, scores, filtering.component))]


def _scores_of(group: Group, scores: Mapping[RolloutKey, Score], needed: str | None) -> GroupScores:
    components = [scores[rollout.key].components for rollout in group.rollouts]
    missing = [found for found in components if needed is not None and needed not in found]
    if missing:
        raise ValueError(
            f"algorithm.online_filtering.filter_key is {needed!r}, but for a response to prompt {group.prompt.uid} the "
            f"reward returned {sorted(missing[0])}: name one of these"
        )
    return group_scores(components)


def too_few(*, found: int, wanted: int, prompts: int, filtering: GroupFilterSection) -> TooFewInformativeGroups:
    """The error of a step that has found `found` of `wanted` groups among `prompts` prompts after the last draw."""
    return TooFewInformativeGroups(
        f"{filtering.max_try_make_batch} draws (algorithm.online_filtering.max_try_make_batch) of {prompts} different "
        f"prompts gave {found} of {wanted} groups {filtering.wants}; widen the filter, give easier or harder prompts, "
        f"lower data.rollout_batch_size, or allow more or larger draws"
    )
