"""Learning: from scored rollouts to new weights."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from rl_core.config.run import RunConfig
from rl_core.config.tolerances import COMPARED_GROUPS, agreement_bounds
from rl_core.loop.collecting import Collected
from rl_core.loop.experience import build_experience
from rl_core.loop.step_metrics import agreement_metrics, update_metrics
from rl_core.timing import PhaseTimer
from rl_core.training.agreement import AgreementMeter, LogProbGap
from rl_core.training.batches import update_batch
from rl_core.training.microbatches import response_tokens
from rl_core.types import Group, TrainGroup
from rl_core.workers.protocol import WorkerGroup


@dataclass(frozen=True, kw_only=True, slots=True)
class Learned:
    """The result of learning from a rollout batch. `nonfinite_streak` is how many optimizer steps in a row, up to now,
    were skipped because of a non-finite gradient."""

    groups: Sequence[TrainGroup]
    metrics: Mapping[str, float]
    mean_kl: float | None
    nonfinite_streak: int


def learn(
    collected: Collected,
    *,
    sampled_now: Sequence[Group] = (),
    step: int,
    config: RunConfig,
    kl_coef: float | None,
    workers: WorkerGroup,
    timer: PhaseTimer,
) -> Learned:
    """Compute the advantages, and update policy and critic; the generator must sleep. Raises AgreementError if the
    log-probs of generator and trainer differ too much: they are compared on `sampled_now`, groups that the present
    weights have sampled, where `collected` is older."""
    compared: dict[str, float] = {}
    if sampled_now:
        gap = compare_with_generator(sampled_now, config=config, workers=workers, timer=timer)
        compared = {**agreement_metrics(gap), "off_policy/staleness": _staleness(collected, workers.policy_version)}
    experience = build_experience(collected, config=config, kl_coef=kl_coef, workers=workers, timer=timer)
    batch = update_batch(experience.groups, collected.prompts, step=step, config=config, kl_coef=kl_coef)
    if sampled_now:
        batch = replace(batch, check_agreement=False)
    with timer.phase("update", batch.response_tokens):
        result = workers.update(batch)
    timer.split("update", result.seconds)
    return Learned(
        groups=experience.groups,
        metrics={**compared, **experience.metrics, **update_metrics(result)},
        mean_kl=experience.mean_kl,
        nonfinite_streak=result.nonfinite_streak,
    )


def compare_with_generator(
    groups: Sequence[Group], *, config: RunConfig, workers: WorkerGroup, timer: PhaseTimer
) -> LogProbGap:
    """Have the trainer compute the log-probs of the first of these groups, which its present weights have sampled, and
    compare them with the generator's, which must sleep. Raises AgreementError as `AgreementMeter.check`."""
    meter = AgreementMeter(workers.policy_version, keeps_surplus=False)
    compared = groups[:COMPARED_GROUPS]
    with timer.phase("agreement", response_tokens(compared)):
        (found,) = workers.compute("old_log_probs", [compared])
    for group, log_probs in zip(compared, found, strict=True):
        meter.add(group.rollouts, np.concatenate(log_probs))
    meter.check(agreement_bounds(config))
    return meter.gap()


def _staleness(collected: Collected, policy_version: int) -> float:
    """By how many updates the rollouts that are learned from are older than the trainer's weights, on average."""
    versions = [rollout.policy_version for group in collected.batch.groups for rollout in group.rollouts]
    return policy_version - float(np.mean(versions))
