"""The rollouts of a step: drawn, scored and, where groups are filtered, drawn again until the batch is full."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from rl_core.algorithms.group_filter import is_informative
from rl_core.config.algorithm import OnlineFilteringConfig
from rl_core.config.run import RunConfig
from rl_core.engine.advantages import scored_groups
from rl_core.engine.protocol import WorkerGroup
from rl_core.engine.scoring import StepScores, TooManyFailedRewards, check_failed_share
from rl_core.rewards.pool import RewardPool
from rl_core.rollout.requests import collect_groups, requests_for
from rl_core.timing import PhaseTimer
from rl_core.types import Group, Prompt, RolloutKey, Sampling, Score

NextPrompts = Callable[[], Sequence[Prompt]]


class StaleWeights(RuntimeError):
    """The engine sampled with other weights than the trainer holds."""


class TooFewInformativeGroups(RuntimeError):
    """Group filtering has not filled the batch within `algorithm.online_filtering.max_try_make_batch` draws."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RolloutBatch:
    """What a step has drawn.

    Attributes:
        groups: Every group, in the loader's order.
        scores: The score of every rollout.
        scored: The groups without the rollouts that have no score; those of which too few are left are left out.
        kept: Those of them to learn from.
        prompts: The rollout batch: prompts whose groups may be learned from.
        metrics: Of the filtering and of the greedy responses; empty without either.
        greedy_rewards: By prompt uid the reward of its greedy response; empty but for ReMax.
    """

    groups: Sequence[Group]
    scores: Mapping[RolloutKey, Score]
    scored: Sequence[Group]
    kept: Sequence[Group]
    prompts: Sequence[Prompt]
    metrics: Mapping[str, float]
    greedy_rewards: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class RolloutSampler:
    """Draws the rollouts of one step with weights that are in sync."""

    step: int
    config: RunConfig
    workers: WorkerGroup
    rewards: RewardPool
    timer: PhaseTimer

    def batch(self, prompts: Sequence[Prompt], *, next_prompts: NextPrompts) -> RolloutBatch:
        """The rollouts of `prompts`; with group filtering, of as many more as fill their number of groups.

        Args:
            prompts: A rollout batch of the loader.
            next_prompts: Gives its next ones.

        Raises:
            StaleWeights: a rollout was drawn with other weights than the trainer's.
            TooManyFailedRewards: the reward fails for more than its allowed share of a draw.
            TooFewInformativeGroups: the configured number of draws has not filled the batch.
        """
        drawn = self._draw(prompts)
        filtering = self.config.algorithm.online_filtering
        if filtering is not None:
            drawn = self._fill(drawn, len(prompts), filtering, next_prompts)
        if self.config.algorithm.adv_estimator == "remax":
            drawn = self._with_greedy_rewards(drawn)
        if not drawn.kept:
            raise TooManyFailedRewards("no group has enough rewards that did not fail to learn from")
        return drawn

    def _fill(
        self, drawn: RolloutBatch, wanted: int, filtering: OnlineFilteringConfig, next_prompts: NextPrompts
    ) -> RolloutBatch:
        draws = 1
        while len(informative := _informative(drawn, filtering)) < wanted:
            if draws == filtering.max_try_make_batch:
                raise _too_few(len(informative), wanted, drawn, filtering)
            drawn = _joined(drawn, self._draw(_unseen(next_prompts(), drawn)))
            draws += 1
        kept = informative[:wanted]
        share = len(informative) / len(drawn.scored)
        metrics = {"filter/kept_share": share, "filter/draws": float(draws)}
        return replace(drawn, kept=kept, prompts=[group.prompt for group in kept], metrics=metrics)

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


def _unseen(prompts: Sequence[Prompt], drawn: RolloutBatch) -> list[Prompt]:
    """A small data set may come round within a step; a prompt's rollouts would be the same again."""
    seen = {group.prompt.uid for group in drawn.groups}
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


def _informative(drawn: RolloutBatch, filtering: OnlineFilteringConfig) -> list[Group]:
    return [
        group
        for group in drawn.scored
        if is_informative(
            _component(group, drawn.scores, filtering.filter_key),
            statistic=filtering.statistic,
            low=filtering.filter_low,
            high=filtering.filter_high,
        )
    ]


def _component(group: Group, scores: Mapping[RolloutKey, Score], key: str) -> np.ndarray:
    components = [scores[rollout.key].components for rollout in group.rollouts]
    missing = [found for found in components if key not in found]
    if missing:
        raise ValueError(
            f"algorithm.online_filtering.filter_key is {key!r}, and the reward gave {sorted(missing[0])} for a "
            f"response to prompt {group.prompt.uid}: name one of these"
        )
    return np.array([found[key] for found in components], dtype=np.float64)


def _too_few(found: int, wanted: int, drawn: RolloutBatch, filtering: OnlineFilteringConfig) -> TooFewInformativeGroups:
    return TooFewInformativeGroups(
        f"{filtering.max_try_make_batch} draws (algorithm.online_filtering.max_try_make_batch) of {len(drawn.groups)} "
        f"different prompts gave {found} of {wanted} groups whose {filtering.statistic} of {filtering.filter_key} is "
        f"above {filtering.filter_low} and below {filtering.filter_high}; widen the bounds, give easier or harder "
        f"prompts, lower data.rollout_batch_size, or allow more draws"
    )
