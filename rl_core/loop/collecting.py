"""Collecting: from the next prompts to scored rollouts, drawn until the batch is full where groups are filtered."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from rl_core.algorithms.group_filter import GroupFilterSection
from rl_core.config.run import RunConfig
from rl_core.loop.advantages import scored_groups
from rl_core.loop.filtering import informative_groups, too_few
from rl_core.loop.rollout_batch import EMPTY, RolloutBatch
from rl_core.loop.scoring import StepScores, TooManyFailedRewards, check_failed_share
from rl_core.rewards.pool import RewardPool
from rl_core.rollout.requests import collect_groups, requests_for
from rl_core.timing import PhaseTimer
from rl_core.types import Group, Prompt, Sampling
from rl_core.workers.protocol import WorkerGroup

NextPrompts = Callable[[], Sequence[Prompt]]
"""The next prompts of the loader: a rollout batch, or with group filtering a draw."""


class StaleWeights(RuntimeError):
    """The generator sampled with other weights than the trainer holds."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Collected:
    """What a step has drawn, and what of it is learned from.

    Attributes:
        drawn: Every group that was drawn, in the order of the loader, with the score of every rollout.
        scored: The groups without the rollouts that have no score; a group with too few rollouts left is left out.
        batch: What is learned from: groups of `scored`, and after them the stale ones.
        prompts: The rollout batch: prompts whose groups may be learned from.
        metrics: Of the filtering and of the greedy responses; empty without either.
        greedy_rewards: By prompt uid the reward of its greedy response; empty where the estimator draws none.
        stale: Groups kept from the step before that are learned from.
        surplus: Groups to keep for the next step.
    """

    drawn: RolloutBatch
    scored: Sequence[Group]
    batch: RolloutBatch
    prompts: Sequence[Prompt]
    metrics: Mapping[str, float] = field(default_factory=dict)
    greedy_rewards: Mapping[str, float] = field(default_factory=dict)
    stale: RolloutBatch = EMPTY
    surplus: RolloutBatch = EMPTY


@dataclass(frozen=True, kw_only=True, slots=True)
class Collector:
    """Collects the rollouts of one step, while the generator is awake."""

    step: int
    config: RunConfig
    workers: WorkerGroup
    rewards: RewardPool
    timer: PhaseTimer

    def collect(self, next_prompts: NextPrompts, *, kept: RolloutBatch = EMPTY) -> Collected:
        """The scored rollouts of a rollout batch; with group filtering, of as many draws as fill it.

        Args:
            next_prompts: Gives the next prompts of the loader.
            kept: Groups that the step before has kept; fewer than a rollout batch.

        Raises:
            StaleWeights: a rollout was drawn with other weights than the trainer's.
            TooManyFailedRewards: the reward fails for more than its allowed share of a draw.
            TooFewInformativeGroups: the configured number of draws has not filled the batch.
        """
        filtering = self.config.algorithm.online_filtering
        collected = self._whole(next_prompts()) if filtering is None else self._filtered(next_prompts, kept, filtering)
        if self.config.algorithm.advantage.uses_greedy:
            collected = self._with_greedy_rewards(collected)
        if not collected.batch.groups:
            raise TooManyFailedRewards("no group has enough rewards that did not fail to learn from")
        return collected

    def _whole(self, prompts: Sequence[Prompt]) -> Collected:
        """Every group with enough scores is learned from."""
        drawn = self._draw(prompts)
        scored = self._scored(drawn)
        return Collected(drawn=drawn, scored=scored, batch=RolloutBatch.of(scored, drawn.scores), prompts=prompts)

    def _filtered(self, next_prompts: NextPrompts, kept: RolloutBatch, filtering: GroupFilterSection) -> Collected:
        """The batch's worth of informative groups: those of this step first, so that generator and trainer are compared
        on them, then those of the step before whose prompt has not come round again."""
        first = next_prompts()
        drawn, draws = self._draw(first), 1
        scored = self._scored(drawn)
        stale = kept.without(first)
        wanted = self.config.data.rollout_batch_size
        missing = wanted - len(stale.groups)
        while len(informative := informative_groups(scored, drawn.scores, filtering)) < missing:
            if draws == filtering.max_try_make_batch:
                found = len(informative) + len(stale.groups)
                raise too_few(found=found, wanted=wanted, drawn=len(drawn.groups), filtering=filtering)
            more = self._draw(_unseen(next_prompts(), [*drawn.groups, *stale.groups]))
            drawn, draws = drawn + more, draws + 1
            scored += self._scored(more)
        batch = RolloutBatch.of(informative[:missing], drawn.scores) + stale
        collected = Collected(
            drawn=drawn,
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
        """One greedy response for each prompt, scored as the others; a group without this baseline is left out."""
        prompts = [group.prompt for group in collected.batch.groups]
        greedy = self._draw(prompts, greedily=True)
        rewards = {uid: score.overall for (uid, _), score in greedy.scores.items() if score.error is None}
        groups = [group for group in collected.batch.groups if group.prompt.uid in rewards]
        return replace(
            collected,
            batch=RolloutBatch.of(groups, collected.batch.scores),
            metrics={**collected.metrics, "reward/greedy": float(np.mean([*rewards.values()]))},
            greedy_rewards=rewards,
        )

    def _scored(self, drawn: RolloutBatch) -> list[Group]:
        return scored_groups(drawn.groups, drawn.scores, config=self.config.algorithm)

    def _draw(self, prompts: Sequence[Prompt], *, greedily: bool = False) -> RolloutBatch:
        """The rollouts of some prompts, or one greedy response for each, with their scores, which are made beside the
        generation."""
        n = 1 if greedily else self.config.rollout.n
        sampling = training_sampling(self.config)
        if greedily:
            sampling = replace(sampling, temperature=0.0)
        requests = requests_for(prompts, n, run_seed=self.config.seed, step=self.step)
        scoring = StepScores(self.rewards, prompts)
        with self.timer.phase("generate"):
            rollouts = scoring.watch(self.workers.generate(requests, sampling))
        with self.timer.phase("reward_wait"):
            scores = scoring.wait()
        groups = collect_groups(prompts, rollouts, n)
        assert_fresh(groups, self.workers.policy_version)
        check_failed_share(scores, max_failed_share=self.config.reward.max_failed_share)
        return RolloutBatch(groups=groups, scores=scores)


def training_sampling(config: RunConfig) -> Sampling:
    """Training draws from the plain distribution at the configured temperature."""
    return Sampling(temperature=config.rollout.temperature, max_tokens=config.rollout.max_response_length)


def assert_fresh(groups: Sequence[Group], policy_version: int) -> None:
    """Every rollout carries the version of its weights; at a learning rate of 1e-6 stale weights would otherwise hide
    below the rounding of bfloat16. Raises StaleWeights."""
    versions = {rollout.policy_version for group in groups for rollout in group.rollouts}
    if versions - {policy_version}:
        raise StaleWeights(f"rollouts of policy version(s) {sorted(versions)}, the trainer is at {policy_version}")


def _keeping(collected: Collected, surplus: Sequence[Group], *, offered: RolloutBatch) -> Collected:
    """With `surplus` kept for the next step, and counted beside the groups that were `offered` by the step before."""
    counts = {
        "filter/kept_groups": len(surplus),
        "filter/stale_groups": len(collected.stale.groups),
        "filter/dropped_groups": len(offered.groups) - len(collected.stale.groups),
    }
    metrics = {**collected.metrics, **{name: float(count) for name, count in counts.items()}}
    return replace(collected, surplus=RolloutBatch.of(surplus, collected.drawn.scores), metrics=metrics)


def _unseen(prompts: Sequence[Prompt], groups: Sequence[Group]) -> list[Prompt]:
    """A small data set may come round within a step; a prompt's rollouts would be the same again, and a batch has no
    place for two groups of one prompt."""
    seen = {group.prompt.uid for group in groups}
    return [prompt for prompt in prompts if prompt.uid not in seen]
