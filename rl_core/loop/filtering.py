"""Group filtering: which groups are learned from, by their scores (`algorithm.online_filtering`), and where in a draw a
batch has enough of them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from rl_core.algorithms.group_filter import GroupFilterSection, GroupScores, group_scores
from rl_core.config.algorithm import AlgorithmConfig
from rl_core.types import Group, RolloutKey, Score

IsInformative = Callable[[Group, Mapping[RolloutKey, Score]], bool]
"""Whether the batch may learn from a group, by the scores of its rollouts."""


class TooFewInformativeGroups(RuntimeError):
    """Group filtering did not fill the batch within `algorithm.online_filtering.max_try_make_batch` draws."""


def scored_groups(
    groups: Sequence[Group], scores: Mapping[RolloutKey, Score], *, config: AlgorithmConfig
) -> list[Group]:
    """The groups without the rollouts that have no score. A group that then has fewer rollouts than the estimator
    needs, two for a group baseline, is left out (docs/architecture.md, "Bad input is named")."""
    kept = [Group(prompt=g.prompt, rollouts=[r for r in g.rollouts if not scores[r.key].error]) for g in groups]
    return [group for group in kept if len(group.rollouts) >= config.advantage.smallest_group]


def informative_groups(
    groups: Sequence[Group], scores: Mapping[RolloutKey, Score], filtering: GroupFilterSection
) -> list[Group]:
    """The groups that pass the filter. All their rollouts must have a score. Raises ValueError if the reward does not
    have the component that the filter uses."""
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
    """The error of a step that has `found` of `wanted` groups among so many prompts after the last draw."""
    return TooFewInformativeGroups(
        f"{filtering.max_try_make_batch} draws (algorithm.online_filtering.max_try_make_batch) of {prompts} different "
        f"prompts gave {found} of {wanted} groups {filtering.wants}; widen the filter, give easier or harder prompts, "
        f"lower data.rollout_batch_size, or allow more or larger draws"
    )


@dataclass(slots=True)
class Quota:
    """Informative groups that are still missing. Groups are counted in the order of the loader, whatever the order in
    which they are generated and scored, so that a draw ends after the same group in every run.

    Attributes:
        missing: How many.
        is_informative: Decides whether a group counts.
    """

    missing: int
    is_informative: IsInformative

    @property
    def is_met(self) -> bool:
        """Whether the groups behind the last one that was counted are not needed."""
        return self.missing <= 0

    def count(self, group: Group, scores: Mapping[RolloutKey, Score]) -> None:
        """Take note of the next group of the draw, of which all rollouts are scored."""
        self.missing -= self.is_informative(group, scores)


def every_group() -> Quota:
    """The quota of a draw of which every group is needed."""
    return Quota(missing=1, is_informative=_never)


def _never(_group: Group, _scores: Mapping[RolloutKey, Score]) -> bool:
    return False
