"""From scored groups to what the update learns from: log-probs, KL, advantages, off-policy weights."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import torch

from rl_core.algorithms.advantages import AdvantageInputs, Grouped
from rl_core.algorithms.correction import (
    LogRatio,
    Weights,
    importance_ratios,
    masked_weights,
    off_policy_metrics,
    truncated_weights,
)
from rl_core.algorithms.kl import KL_ESTIMATORS, KLEstimator
from rl_core.algorithms.token_advantages import TokenValues
from rl_core.config.algorithm import AlgorithmConfig, Correction, KLConfig, MaskedCorrection
from rl_core.config.run import RunConfig
from rl_core.loop.collecting import Collected
from rl_core.loop.step_metrics import critic_metrics
from rl_core.timing import PhaseTimer
from rl_core.training.batches import split_by_optimizer_step
from rl_core.training.microbatches import response_tokens
from rl_core.types import Float32Array, Group, RolloutKey, Score, TrainGroup, TrainSample
from rl_core.workers.protocol import WorkerGroup

TokenArrays = Sequence[Sequence[Float32Array]]
"""[group][rollout] -> [R] float32."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Experience:
    """A rollout batch, ready for the update. `mean_kl` to the reference is in nats per token."""

    groups: Sequence[TrainGroup]
    metrics: Mapping[str, float]
    mean_kl: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class ReferenceKL:
    """A rollout batch under the reference.

    Attributes:
        ref_log_probs: [group][rollout] -> [R] float32; None if the KL is computed over the whole vocabulary.
        per_token: [group][rollout] -> [R] float64, KL(old || reference) at each token, or an estimate of it.
        in_reward: Whether the KL is subtracted from the reward; if not, it is a term of the loss.
    """

    ref_log_probs: TokenArrays | None
    per_token: Grouped
    in_reward: bool

    @property
    def mean(self) -> float:
        """Mean over the responses of their token means, nats per token, which an adaptive controller follows."""
        return float(np.mean([values.mean() for group in self.per_token for values in group]))

    def penalties(self, coef: float) -> Grouped | None:
        """What is subtracted from each token's reward; None if the KL is a term of the loss."""
        return [[coef * values for values in group] for group in self.per_token] if self.in_reward else None


def build_experience(
    collected: Collected,
    *,
    config: RunConfig,
    kl_coef: float | None,
    workers: WorkerGroup,
    timer: PhaseTimer,
) -> Experience:
    """Have the workers compute the log-probs and values that the algorithm needs, and compute the advantages. Without a
    KL term `kl_coef` is None."""
    groups, algorithm = collected.batch.groups, config.algorithm
    old, weights, metrics = _old_log_probs(collected, config, workers, timer)
    kl = _reference_kl(groups, old, algorithm.kl, workers, timer)
    penalties = None
    if kl is not None and kl_coef is not None:
        metrics |= {"kl/reference": kl.mean, "kl/coef": kl_coef}
        penalties = kl.penalties(kl_coef)
    values = _values(groups, algorithm, workers, timer)
    inputs = advantage_inputs(
        groups,
        collected.batch.scores,
        kl_penalties=penalties,
        greedy_rewards=collected.greedy_rewards,
        values=values,
    )
    returns = algorithm.advantage.value_targets(inputs)
    trained = train_groups(
        groups,
        advantages=algorithm.advantage.advantages(inputs),
        old=old,
        ref=None if kl is None else kl.ref_log_probs,
        importance_weights=weights,
        values=values,
        returns=returns,
        overlong_filtering=algorithm.overlong_filtering,
    )
    return Experience(
        groups=trained,
        metrics={**metrics, **critic_metrics(inputs.values, returns), **_overlong_metrics(trained, algorithm)},
        mean_kl=None if kl is None else kl.mean,
    )


def _overlong_metrics(groups: Sequence[TrainGroup], config: AlgorithmConfig) -> dict[str, float]:
    if not config.overlong_filtering:
        return {}
    samples = [sample for group in groups for sample in group.samples]
    return {"filter/overlong_share": float(np.mean([not sample.in_loss for sample in samples]))}


def _old_log_probs(
    collected: Collected, config: RunConfig, workers: WorkerGroup, timer: PhaseTimer
) -> tuple[TokenArrays, Grouped | None, dict[str, float]]:
    groups, algorithm = collected.batch.groups, config.algorithm
    if algorithm.old_log_probs == "engine":
        return [[rollout.log_probs for rollout in group.rollouts] for group in groups], None, {}
    batches = split_by_optimizer_step(groups, collected.prompts, global_batch_size=config.actor.global_batch_size)
    with timer.phase("old_log_probs", response_tokens(groups)):
        found = workers.compute("old_log_probs", batches)
    by_uid = {
        group.prompt.uid: log_probs
        for batch, of_batch in zip(batches, found, strict=True)
        for group, log_probs in zip(batch, of_batch, strict=True)
    }
    old = [by_uid[group.prompt.uid] for group in groups]
    return old, *_corrected(_log_ratios(groups, old), algorithm.correction)


def _reference_kl(
    groups: Sequence[Group], old: TokenArrays, config: KLConfig | None, workers: WorkerGroup, timer: PhaseTimer
) -> ReferenceKL | None:
    """The KL between the sampling policy, whose log-probs are `old`, and the reference."""
    if config is None:
        return None
    in_reward, is_full = not config.use_kl_loss, config.penalty == "full"
    with timer.phase("reference", response_tokens(groups)):
        (found,) = workers.compute("full_kl" if is_full else "reference_log_probs", [groups])
    if is_full:
        full = [[values.astype(np.float64) for values in group] for group in found]
        return ReferenceKL(ref_log_probs=None, per_token=full, in_reward=in_reward)
    estimates = _estimated(old, found, KL_ESTIMATORS[config.penalty])
    return ReferenceKL(ref_log_probs=found, per_token=estimates, in_reward=in_reward)


def _estimated(old: TokenArrays, ref: TokenArrays, estimate: KLEstimator) -> Grouped:
    return [
        [
            estimate(torch.from_numpy(mine), torch.from_numpy(theirs)).double().numpy()
            for mine, theirs in zip(*pair, strict=True)
        ]
        for pair in zip(old, ref, strict=True)
    ]


def _values(groups: Sequence[Group], config: AlgorithmConfig, workers: WorkerGroup, timer: PhaseTimer) -> TokenArrays:
    if not config.advantage.uses_critic:
        return []
    with timer.phase("values", response_tokens(groups)):
        (found,) = workers.compute("values", [groups])
        return found


def _log_ratios(groups: Sequence[Group], trainer: TokenArrays) -> Grouped:
    """[group][rollout] -> [R] float64: the trainer's log-probs minus the generator's."""
    return [
        [
            log_probs.astype(np.float64) - rollout.log_probs
            for rollout, log_probs in zip(group.rollouts, trainer[i], strict=True)
        ]
        for i, group in enumerate(groups)
    ]


def _corrected(ratios: Grouped, config: Correction | None) -> tuple[Grouped | None, dict[str, float]]:
    """The importance weights, [group][rollout] -> [R], or None if no correction is configured; and the metrics."""
    weights = None if config is None else [[_weights(part, config) for part in group] for group in ratios]
    used = None if weights is None else list(chain.from_iterable(weights))
    return weights, off_policy_metrics(list(chain.from_iterable(ratios)), used)


def _weights(log_ratio: LogRatio, config: Correction) -> Weights:
    ratios = importance_ratios(log_ratio, config.level)
    if isinstance(config, MaskedCorrection):
        return masked_weights(ratios, clip_min=config.clip_min, clip_max=config.clip_max)
    return truncated_weights(ratios, clip_max=config.clip_max)


def advantage_inputs(
    groups: Sequence[Group],
    scores: Mapping[RolloutKey, Score],
    *,
    kl_penalties: Grouped | None,
    greedy_rewards: Mapping[str, float],
    values: TokenArrays,
) -> AdvantageInputs:
    """The inputs of the advantage estimator, from groups whose rollouts all have a score. `greedy_rewards` are those of
    the greedy responses by prompt uid, and `values` the critic's; both may be empty."""
    rewards = [[_token_rewards(len(r.response_ids), scores[r.key].overall) for r in g.rollouts] for g in groups]
    if kl_penalties is not None:
        rewards = [
            [reward - penalty for reward, penalty in zip(*pair, strict=True)]
            for pair in zip(rewards, kl_penalties, strict=True)
        ]
    greedy = [greedy_rewards[group.prompt.uid] for group in groups] if greedy_rewards else []
    return AdvantageInputs(
        token_rewards=rewards,
        greedy_rewards=greedy,
        values=[[part.astype(np.float64) for part in group] for group in values],
    )


def train_groups(
    groups: Sequence[Group],
    *,
    advantages: Grouped,
    old: TokenArrays,
    ref: TokenArrays | None,
    importance_weights: Grouped | None,
    values: TokenArrays = (),
    returns: Grouped = (),
    overlong_filtering: bool = False,
) -> list[TrainGroup]:
    """The groups with everything that the losses need of each token, all [group][rollout] -> [R]. `values` and
    `returns` are empty if there is no critic."""
    return [
        TrainGroup(
            prompt=group.prompt,
            samples=[
                TrainSample(
                    rollout=rollout,
                    advantages=advantages[i][j].astype(np.float32),
                    old_log_probs=old[i][j],
                    ref_log_probs=ref[i][j] if ref else None,
                    importance_weights=importance_weights[i][j].astype(np.float32) if importance_weights else None,
                    values=values[i][j] if values else None,
                    returns=returns[i][j].astype(np.float32) if returns else None,
                    in_loss=not (overlong_filtering and rollout.finish_reason == "length"),
                )
                for j, rollout in enumerate(group.rollouts)
            ],
        )
        for i, group in enumerate(groups)
    ]


def _token_rewards(length: int, score: float) -> TokenValues:
    """[R] The score is the reward of the last token; all others have 0."""
    rewards = np.zeros(length)
    rewards[-1] = score
    return rewards
