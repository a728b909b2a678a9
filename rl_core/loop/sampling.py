"""The rollouts of a step: drawn, scored and, where groups are filtered, drawn again until the batch is full."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from rl_core.config.algorithm import OnlineFilteringConfig
from rl_core.config.run import RunConfig
from rl_core.loop.advantages import scored_groups
from rl_core.loop.filtering import informative_groups, too_few
from rl_core.loop.scoring import StepScores, TooManyFailedRewards, check_failed_share
from rl_core.loop.surplus import NOTHING_KEPT, Surplus
from rl_core.rewards.pool import RewardPool
from rl_core.rollout.requests import collect_groups, requests_for
from rl_core.timing import PhaseTimer
from rl_core.types import Group, Prompt, RolloutKey, Sampling, Score
from rl_core.workers.protocol import WorkerGroup

NextPrompts = Callable[[], Sequence[Prompt]]


class StaleWeights(RuntimeError):
    """The engine sampled with other weights than the trainer holds."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RolloutBatch:
    """What a step has drawn.

    Attributes:
        groups: Every group, in the loader's order.
        scores: The score of every rollout of them.
        scored: The groups without the rollouts that have no score; those of which too few are left are left out.
        kept: Those of them to learn from, and after them the stale ones.
        prompts: The rollout batch: prompts whose groups may be learned from.
        metrics: Of the filtering and of the greedy responses; empty without either.
        greedy_rewards: By prompt uid the reward of its greedy response; empty but for ReMax.
        stale: Groups kept from the step before that are learned from.
        surplus: Groups to keep for the next step.
    """

    groups: Sequence[Group]
    scores: Mapping[RolloutKey, Score]
    scored: Sequence[Group]
    kept: Sequence[Group]
    prompts: Sequence[Prompt]
    metrics: Mapping[str, float]
    greedy_rewards: Mapping[str, float] = field(default_factory=dict)
    stale: Surplus = NOTHING_KEPT
    surplus: Surplus = NOTHING_KEPT

    @property
    def all_scores(self) -> Mapping[RolloutKey, Score]:
        """Those of the stale groups too."""
        return {**self.scores, **self.stale.scores}


@dataclass(frozen=True, kw_only=True, slots=True)
class RolloutSampler:
    """Draws the rollouts of one step with weights that are in sync."""

    step: int
    config: RunConfig
    workers: WorkerGroup
    rewards: RewardPool
    timer: PhaseTimer

    def batch(
        self, prompts: Sequence[Prompt], *, next_prompts: NextPrompts, kept: Surplus = NOTHING_KEPT
    ) -> RolloutBatch:
        """The rollouts of `prompts`; with group filtering, of as many more as fill `data.rollout_batch_size` groups.

        Args:
            prompts: A rollout batch of the loader; with group filtering its first draw.
            next_prompts: Gives its next ones.
            kept: Groups that the step before has kept; fewer than a rollout batch.

        Raises:
            StaleWeights: a rollout was drawn with other weights than the trainer's.
            TooManyFailedRewards: the reward fails for more than its allowed share of a draw.
            TooFewInformativeGroups: the configured number of draws has not filled the batch.
        """
        drawn = self._draw(prompts)
        filtering = self.config.algorithm.online_filtering
        if filtering is not None:
            drawn = self._fill(drawn, kept, filtering, next_prompts)
        if self.config.algorithm.adv_estimator == "remax":
            drawn = self._with_greedy_rewards(drawn)
        if not drawn.kept:
            raise TooManyFailedRewards("no group has enough rewards that did not fail to learn from")
        return drawn

    def _fill(
        self, drawn: RolloutBatch, kept: Surplus, filtering: OnlineFilteringConfig, next_prompts: NextPrompts
    ) -> RolloutBatch:
        """The batch's worth of informative groups: those of this step first, so that engine and trainer are compared on
        them, then those of the step before whose prompt has not come round again."""
        stale = kept.without(drawn.prompts)
        wanted = self.config.data.rollout_batch_size
        missing, draws = wanted - len(stale.groups), 1
        while len(informative := informative_groups(drawn.scored, drawn.scores, filtering)) < missing:
            if draws == filtering.max_try_make_batch:
                found = len(informative) + len(stale.groups)
                raise too_few(found=found, wanted=wanted, drawn=len(drawn.groups), filtering=filtering)
            drawn = _joined(drawn, self._draw(_unseen(next_prompts(), [*drawn.groups, *stale.groups])))
            draws += 1
        chosen = [*informative[:missing], *stale.groups]
        metrics = {"filter/kept_share": len(informative) / len(drawn.scored), "filter/draws": float(draws)}
        filled = replace(drawn, kept=chosen, prompts=[group.prompt for group in chosen], stale=stale, metrics=metrics)
        return (
            filled
            if filtering.surplus == "discard"
            else _keeping(filled, informative[missing:][: wanted - 1], offered=kept)
        )

    def _with_greedy_rewards(self, drawn: RolloutBatch) -> RolloutBatch:
        """One greedy response a kept prompt, judged as the others; a group without this baseline is left out."""
        prompts = [group.prompt for group in drawn.kept]
        _, scores = self._rollouts(prompts, n=1, sampling=replace(training_sampling(self.config), temperature=0.0))
        rewards = {uid: score.overall for (uid, _), score in scores.items() if score.error is None}
        return replace(
            drawn,
            kept=[group for group in drawn.kept if group.prompt.uid in rewards],
            metrics={**drawn.metrics, "reward/greedy": float(np.mean([*rewards.values()]))},
            greedy_rewards=rewards,
        )

    def _draw(self, prompts: Sequence[Prompt]) -> RolloutBatch:
        groups, scores = self._rollouts(prompts, n=self.config.rollout.n, sampling=training_sampling(self.config))
        scored = scored_groups(groups, scores, config=self.config.algorithm)
        return RolloutBatch(groups=groups, scores=scores, scored=scored, kept=scored, prompts=prompts, metrics={})

    def _rollouts(
        self, prompts: Sequence[Prompt], *, n: int, sampling: Sampling
    ) -> tuple[list[Group], dict[RolloutKey, Score]]:
        """n rollouts a prompt with their scores, which are made beside the generation."""
        requests = requests_for(prompts, n, run_seed=self.config.seed, step=self.step)
        scoring = StepScores(self.rewards, prompts)
        with self.timer.phase("generate"):
            rollouts = scoring.watch(self.workers.generate(requests, sampling))
        with self.timer.phase("reward_wait"):
            scores = scoring.wait()
        groups = collect_groups(prompts, rollouts, n)
        assert_fresh(groups, self.workers.policy_version)
        check_failed_share(scores, max_failed_share=self.config.reward.max_failed_share)
        return groups, scores


def no_more_prompts() -> Sequence[Prompt]:
    """For a step that filters no groups."""
    return ()


def training_sampling(config: RunConfig) -> Sampling:
    """Training draws from the plain distribution at the configured temperature."""
    return Sampling(temperature=config.rollout.temperature, max_tokens=config.rollout.max_response_length)


def assert_fresh(groups: Sequence[Group], policy_version: int) -> None:
    """Every rollout carries the version of its weights; at a learning rate of 1e-6 stale weights would otherwise hide
    below the rounding of bfloat16. Raises StaleWeights."""
    versions = {rollout.policy_version for group in groups for rollout in group.rollouts}
    if versions - {policy_version}:
        raise StaleWeights(f"rollouts of policy version(s) {sorted(versions)}, the trainer is at {policy_version}")


def _keeping(drawn: RolloutBatch, surplus: Sequence[Group], *, offered: Surplus) -> RolloutBatch:
    """With `surplus` kept for the next step, and counted beside those that were `offered` by the step before."""
    counts = {
        "filter/kept_groups": len(surplus),
        "filter/stale_groups": len(drawn.stale.groups),
        "filter/dropped_groups": len(offered.groups) - len(drawn.stale.groups),
    }
    metrics = {**drawn.metrics, **{name: float(count) for name, count in counts.items()}}
    return replace(drawn, surplus=Surplus.of(surplus, drawn.scores), metrics=metrics)


def _unseen(prompts: Sequence[Prompt], groups: Sequence[Group]) -> list[Prompt]:
    """A small data set may come round within a step; a prompt's rollouts would be the same again, and a batch has no
    place for two groups of one prompt."""
    seen = {group.prompt.uid for group in groups}
    return [prompt for prompt in prompts if prompt.uid not in seen]


def _joined(first: RolloutBatch, second: RolloutBatch) -> RolloutBatch:
    return RolloutBatch(
        groups=[*first.groups, *second.groups],
        scores={**first.scores, **second.scores},
        scored=[*first.scored, *second.scored],
        kept=[*first.kept, *second.kept],
        prompts=[*first.prompts, *second.prompts],
        metrics={},
    )
