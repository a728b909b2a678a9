"""Draws: prompts whose responses are scored while others are generated, up to where enough groups pass the filter
(`algorithm.online_filtering`)."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Final

from rl_core.algorithms.group_filter import GroupFilterSection, GroupScores, group_scores
from rl_core.config.algorithm import AlgorithmConfig
from rl_core.loop.rollout_batch import RolloutBatch
from rl_core.rewards.pool import RewardPool
from rl_core.rewards.sample import RewardSample
from rl_core.rollout.requests import collect_groups
from rl_core.types import Group, Prompt, Rollout, RolloutKey, Score


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
    groups: Sequence[Group],
    scores: Mapping[RolloutKey, Score],
    filtering: GroupFilterSection,
    *,
    may_lack: bool = False,
) -> list[Group]:
    """The groups that pass the filter. If scores `may_lack` the component that it uses, as those of a mixture of which
    a part is not for some responses, it sees the others, and a group without any does not pass. If not, raises
    ValueError where a score lacks it."""
    seen = [_scores_of(group, scores, filtering.component, may_lack=may_lack) for group in groups]
    return [group for group, found in zip(groups, seen, strict=True) if found is not None and filtering.keeps(found)]


def _scores_of(
    group: Group, scores: Mapping[RolloutKey, Score], needed: str | None, *, may_lack: bool
) -> GroupScores | None:
    components = [scores[rollout.key].components for rollout in group.rollouts]
    missing = [found for found in components if needed is not None and needed not in found]
    if may_lack:
        with_it = [found for found in components if needed is None or needed in found]
        return group_scores(with_it) if with_it else None
    if missing:
        raise ValueError(
            f"algorithm.online_filtering.filter_key is {needed!r}, but for a response to prompt {group.prompt.uid} the "
            f"reward returned {sorted(missing[0])}: name one of these"
        )
    return group_scores(components)


@dataclass(slots=True)
class Quota:
    """How many groups are still missing that the batch may learn from, by the scores of their rollouts. Groups are
    counted in the order of the loader, so that a draw ends after the same group in every run."""

    missing: int
    is_informative: Callable[[Group, Mapping[RolloutKey, Score]], bool]

    @property
    def is_met(self) -> bool:
        """Whether no further group is needed."""
        return self.missing <= 0

    def count(self, group: Group, scores: Mapping[RolloutKey, Score]) -> None:
        """Count the next group of the draw, of which all rollouts are scored."""
        self.missing -= self.is_informative(group, scores)


EVERY_GROUP: Final = Quota(missing=1, is_informative=lambda group, scores: False)
"""The quota of a draw of which every group is needed."""


class DrawScores:
    """The rollouts of a draw (n of each prompt, in the order of the loader) and their scores: of its first groups that
    meet a quota, which counts them, or of all. Each rollout is submitted to the reward pool as soon as it is finished.
    """

    def __init__(self, pool: RewardPool, prompts: Sequence[Prompt], n: int, quota: Quota, *, step: int) -> None:
        self._pool = pool
        self._step = step
        self._prompts = prompts
        self._by_uid = {prompt.uid: prompt for prompt in prompts}
        self._n = n
        self._quota = quota
        self._rollouts: dict[str, list[Rollout]] = {prompt.uid: [] for prompt in prompts}
        self._pending: dict[RolloutKey, Future[Score]] = {}
        self._groups: list[Group] = []
        self._scores: dict[RolloutKey, Score] = {}

    def watch(self, rollouts: Iterable[Rollout]) -> None:
        """Take rollouts as they come, and have them scored, until the scored groups meet the quota."""
        for rollout in rollouts:
            self._rollouts[rollout.prompt_uid].append(rollout)
            sample = RewardSample.of(self._by_uid[rollout.prompt_uid], rollout, step=self._step)
            self._pending[rollout.key] = self._pool.submit(sample)
            while not self._has_ended and self._next_is_scored():
                self._count_next()
            if self._quota.is_met:
                break
        self._pool.flush()

    def wait(self) -> RolloutBatch:
        """Wait for the scores of the groups that are needed; failed ones have the reason. Raises RuntimeError as
        `collect_groups`."""
        while not self._has_ended:
            self._count_next()
        return RolloutBatch(groups=self._groups, scores=self._scores).in_order_of_keys()

    @property
    def _has_ended(self) -> bool:
        return self._quota.is_met or len(self._groups) == len(self._prompts)

    @property
    def _next(self) -> Prompt:
        return self._prompts[len(self._groups)]

    def _next_is_scored(self) -> bool:
        rollouts = self._rollouts[self._next.uid]
        return len(rollouts) >= self._n and all(self._pending[rollout.key].done() for rollout in rollouts)

    def _count_next(self) -> None:
        (group,) = collect_groups([self._next], self._rollouts[self._next.uid], self._n)
        scores = {rollout.key: self._pending[rollout.key].result() for rollout in group.rollouts}
        self._groups.append(group)
        self._scores |= scores
        self._quota.count(group, scores)
