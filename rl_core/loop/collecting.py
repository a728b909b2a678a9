"""From the next prompts to scored rollouts. With group filtering, prompts are drawn until the batch is full."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace

import numpy as np

from rl_core.algorithms.group_filter import GroupFilterSection
from rl_core.config.run import RunConfig
from rl_core.isolation.failed_share import TooManyFailures, check_failed_share
from rl_core.loop.draws import (
    EVERY_GROUP,
    DrawScores,
    Quota,
    TooFewInformativeGroups,
    informative_groups,
    scored_groups,
)
from rl_core.loop.rollout_batch import EMPTY, RolloutBatch
from rl_core.progress import TALLY
from rl_core.rewards.pool import RewardPool
from rl_core.rollout.requests import requests_for
from rl_core.timing import PhaseTimer
from rl_core.tools.conversations import Conversing, single_turn
from rl_core.types import Group, Prompt, Sampling
from rl_core.workers.protocol import WorkerGroup

NextPrompts = Callable[[], Sequence[Prompt]]
"""Gives a rollout batch, or with group filtering the prompts of one draw."""


class StaleWeights(RuntimeError):
    """The generator sampled with other weights than the trainer held."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Collected:
    """The rollouts that a step has generated, and those that it learns from.

    Attributes:
        generated: All groups that were generated, in the order of the loader, with the scores of their rollouts.
        scored: The groups without the rollouts that have no score. A group with too few rollouts left is left out.
        batch: The groups that the step learns from: groups of `scored`, then the stale ones.
        prompts: The rollout batch: the prompts whose groups may be learned from.
        metrics: Of the filtering and of the greedy responses; empty if there is neither.
        greedy_rewards: Prompt uid -> reward of the greedy response; empty if the estimator needs none.
        stale: Groups kept from the previous step that this step learns from.
        surplus: Groups to keep for the next step.
    """

    generated: RolloutBatch
    scored: Sequence[Group]
    batch: RolloutBatch
    prompts: Sequence[Prompt]
    metrics: Mapping[str, float] = field(default_factory=dict)
    greedy_rewards: Mapping[str, float] = field(default_factory=dict)
    stale: RolloutBatch = EMPTY
    surplus: RolloutBatch = EMPTY


@dataclass(frozen=True, kw_only=True, slots=True)
class Collector:
    """Collects the rollouts of one step (from 1), while the generator is awake.

    Attributes:
        policy_version: Version of the weights that sample.
        recorded: Rollouts of this step that an interrupted attempt has generated and scored. They are taken instead of
            being generated again, if the same weights have sampled them.
    """

    step: int
    config: RunConfig
    workers: WorkerGroup
    rewards: RewardPool
    timer: PhaseTimer
    policy_version: int
    recorded: RolloutBatch = EMPTY
    conversing: Conversing = single_turn

    def collect(self, next_prompts: NextPrompts, *, kept: RolloutBatch = EMPTY) -> Collected:
        """Generate and score a rollout batch; the previous step has `kept` fewer groups than that. Raises StaleWeights,
        TooManyFailures, TooFewInformativeGroups."""
        filtering = self.config.algorithm.online_filtering
        if filtering is None:
            prompts = next_prompts()
            collected = self._unfiltered(self._sampled(prompts, EVERY_GROUP), prompts)
        else:
            collected = self._filtered(next_prompts, kept, filtering)
        if self.config.algorithm.advantage.uses_greedy:
            collected = self._with_greedy_rewards(collected)
        if not collected.batch.groups:
            raise TooManyFailures(
                "too many rewards failed, or returned None: no group has enough scored rollouts to learn from"
            )
        return collected

    def _unfiltered(self, generated: RolloutBatch, prompts: Sequence[Prompt]) -> Collected:
        scored = self._scored(generated)
        return Collected(
            generated=generated, scored=scored, batch=RolloutBatch.of(scored, generated.scores), prompts=prompts
        )

    def _filtered(self, next_prompts: NextPrompts, kept: RolloutBatch, filtering: GroupFilterSection) -> Collected:
        """First groups of this step, on which generator and trainer are compared, then groups kept from the previous
        step, unless this step has their prompt too. If there is no use for a surplus, the last draw ends with the group
        that fills the batch."""
        first = next_prompts()
        stale = kept.without(first)
        wanted = self.config.data.rollout_batch_size
        missing = wanted - len(stale.groups)
        generated, draws = self._sampled(first, self._quota(missing, filtering)), 1
        informative = self._informative(generated, filtering)
        while len(informative) < missing:
            if draws == filtering.max_try_make_batch:
                found = len(informative) + len(stale.groups)
                raise _too_few(found=found, wanted=wanted, prompts=len(generated.groups), filtering=filtering)
            prompts = _unseen(next_prompts(), [*generated.groups, *stale.groups])
            more = self._sampled(prompts, self._quota(missing - len(informative), filtering))
            generated, draws = generated + more, draws + 1
            informative += self._informative(more, filtering)
        scored = self._scored(generated)
        batch = RolloutBatch.of(informative[:missing], generated.scores) + stale
        collected = Collected(
            generated=generated,
            scored=scored,
            batch=batch,
            prompts=[group.prompt for group in batch.groups],
            metrics={"filter/kept_share": len(informative) / len(scored), "filter/draws": float(draws)},
            stale=stale,
        )
        if filtering.surplus == "discard":
            return collected
        return _keeping(collected, informative[missing:][: wanted - 1], offered=kept)

    def _with_greedy_rewards(self, collected: Collected) -> Collected:
        """With one greedy response for each prompt. A group whose greedy response has no score is left out."""
        prompts = [group.prompt for group in collected.batch.groups]
        greedy = self._sampled(prompts, EVERY_GROUP, greedily=True)
        rewards = {uid: score.overall for (uid, _), score in greedy.scores.items() if score.error is None}
        groups = [group for group in collected.batch.groups if group.prompt.uid in rewards]
        return replace(
            collected,
            batch=RolloutBatch.of(groups, collected.batch.scores),
            metrics={**collected.metrics, "reward/greedy": float(np.mean([*rewards.values()]))},
            greedy_rewards=rewards,
        )

    def _scored(self, generated: RolloutBatch) -> list[Group]:
        return scored_groups(generated.groups, generated.scores, config=self.config.algorithm)

    def _informative(self, generated: RolloutBatch, filtering: GroupFilterSection) -> list[Group]:
        may_lack = any(choice.mixture for _, choice in self.config.reward.choices())
        return informative_groups(self._scored(generated), generated.scores, filtering, may_lack=may_lack)

    def _quota(self, missing: int, filtering: GroupFilterSection) -> Quota:
        if filtering.surplus == "keep":
            return EVERY_GROUP
        return Quota(
            missing=missing,
            is_informative=lambda group, scores: bool(self._informative(RolloutBatch.of([group], scores), filtering)),
        )

    def _sampled(self, prompts: Sequence[Prompt], quota: Quota, *, greedily: bool = False) -> RolloutBatch:
        """The scored rollouts of the first prompts, in the order of the loader, that meet the quota, which counts them,
        or of all: recorded, or generated now. Greedy responses, one for each prompt, are never recorded."""
        if not greedily and (recorded := self._recorded(prompts, replace(quota))) is not None:
            return recorded
        n, sampling = self.config.rollout.n, training_sampling(self.config)
        if greedily:
            n, sampling = 1, replace(sampling, temperature=0.0)
        requests = requests_for(prompts, n, run_seed=self.config.seed, step=self.step)
        scoring = DrawScores(self.rewards, prompts, n, quota, step=self.step)
        before = TALLY.copy()
        with (
            self.timer.phase("generate", len(requests)),
            closing(self.conversing(self.workers.generate, self.policy_version)(requests, sampling)) as rollouts,
        ):
            scoring.watch(rollouts)
        if waited := TALLY.since(before).waited:
            self.timer.split("generate", {"tool_wait": waited})
        with self.timer.phase("reward_wait"):
            generated = scoring.wait()
        assert_fresh(generated.groups, self.policy_version)
        failed = [(key, score) for key, score in generated.scores.items() if score.has_failed]
        check_failed_share(
            [f"{uid} sample {index}: {score.error}" for (uid, index), score in failed],
            len(generated.scores),
            max_failed_share=self.config.reward.max_failed_share,
        )
        return generated

    def _recorded(self, prompts: Sequence[Prompt], quota: Quota) -> RolloutBatch | None:
        """Recorded rollouts of the weights that would sample now; None if some of them are missing."""
        of_prompt = {group.prompt.uid: group for group in self.recorded.groups}
        taken: list[Group] = []
        for prompt in prompts:
            if quota.is_met:
                break
            if prompt.uid not in of_prompt:
                return None
            taken.append(of_prompt[prompt.uid])
            quota.count(taken[-1], self.recorded.scores)
        if policy_versions(taken) != {self.policy_version}:
            return None
        return RolloutBatch.of(taken, self.recorded.scores).in_order_of_keys()


def training_sampling(config: RunConfig) -> Sampling:
    """The unfiltered distribution at the configured temperature."""
    return Sampling(temperature=config.rollout.temperature, max_tokens=config.rollout.max_response_length)


def assert_fresh(groups: Sequence[Group], policy_version: int) -> None:
    """Raises StaleWeights. At a learning rate of 1e-6 the log-probs alone would not show it: the difference is smaller
    than the rounding of bfloat16."""
    versions = policy_versions(groups)
    if versions - {policy_version}:
        raise StaleWeights(
            f"the rollouts were sampled with policy version(s) {sorted(versions)}, but the trainer had {policy_version}"
        )


def policy_versions(groups: Sequence[Group]) -> set[int]:
    """The versions of the weights that have sampled the groups."""
    return {rollout.policy_version for group in groups for rollout in group.rollouts}


def _keeping(collected: Collected, surplus: Sequence[Group], *, offered: RolloutBatch) -> Collected:
    """Keep `surplus` for the next step, and count what became of the groups that the previous step `offered`."""
    counts = {
        "filter/kept_groups": len(surplus),
        "filter/stale_groups": len(collected.stale.groups),
        "filter/dropped_groups": len(offered.groups) - len(collected.stale.groups),
    }
    metrics = {**collected.metrics, **{name: float(count) for name, count in counts.items()}}
    return replace(collected, surplus=RolloutBatch.of(surplus, collected.generated.scores), metrics=metrics)


def _unseen(prompts: Sequence[Prompt], groups: Sequence[Group]) -> list[Prompt]:
    """The prompts that have no group yet. A small data set may start over within a step, and the rollouts of a repeated
    prompt would be the same."""
    seen = {group.prompt.uid for group in groups}
    return [prompt for prompt in prompts if prompt.uid not in seen]


def _too_few(*, found: int, wanted: int, prompts: int, filtering: GroupFilterSection) -> TooFewInformativeGroups:
    return TooFewInformativeGroups(
        f"{filtering.max_try_make_batch} draws (algorithm.online_filtering.max_try_make_batch) of {prompts} different "
        f"prompts gave {found} of {wanted} groups {filtering.wants}; widen the filter, give easier or harder prompts, "
        f"lower data.rollout_batch_size, or allow more or larger draws"
    )
