"""From scored groups to what the update learns from: log-probs, KL, advantages, off-policy weights."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from rl_core.algorithms.advantages import Grouped
from rl_core.algorithms.correction import (
    LogRatio,
    Weights,
    importance_ratios,
    masked_weights,
    off_policy_metrics,
    truncated_weights,
)
from rl_core.config.algorithm import AlgorithmConfig, Correction, MaskedCorrection
from rl_core.config.run import RunConfig
from rl_core.loop.advantages import TokenArrays, advantage_inputs, train_groups
from rl_core.loop.collecting import Collected
from rl_core.loop.reference_kl import ReferenceKL, reference_kl
from rl_core.loop.step_metrics import critic_metrics
from rl_core.timing import PhaseTimer
from rl_core.training.batches import split_by_optimizer_step
from rl_core.types import Group, TrainGroup
from rl_core.workers.protocol import WorkerGroup


@dataclass(frozen=True, kw_only=True, slots=True)
class Experience:
    """A rollout batch, ready for the update.

    Attributes:
        groups: Its groups, in the given order.
        metrics: Functions of config, data and seed only.
        mean_kl: Mean KL to the reference, nats per token; None if there is no reference.
    """

    groups: Sequence[TrainGroup]
    metrics: Mapping[str, float]
    mean_kl: float | None


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
    kl = _reference_pass(groups, old, algorithm, workers, timer)
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
    with timer.phase("old_log_probs"):
        found = workers.compute("old_log_probs", batches)
    by_uid = {
        group.prompt.uid: log_probs
        for batch, of_batch in zip(batches, found, strict=True)
        for group, log_probs in zip(batch, of_batch, strict=True)
    }
    old = [by_uid[group.prompt.uid] for group in groups]
    return old, *_corrected(_log_ratios(groups, old), algorithm.correction)


def _reference_pass(
    groups: Sequence[Group], old: TokenArrays, config: AlgorithmConfig, workers: WorkerGroup, timer: PhaseTimer
) -> ReferenceKL | None:
    if config.kl is None:
        return None
    with timer.phase("reference"):
        return reference_kl(groups, old, config=config.kl, workers=workers)


def _values(groups: Sequence[Group], config: AlgorithmConfig, workers: WorkerGroup, timer: PhaseTimer) -> TokenArrays:
    if not config.advantage.uses_critic:
        return []
    with timer.phase("values"):
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
