"""One training step, in the order in which it happens."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rl_core.config.run import RunConfig
from rl_core.engine.advantages import scored_groups
from rl_core.engine.experience import build_experience
from rl_core.engine.protocol import UpdateBatch, WorkerGroup
from rl_core.engine.scoring import StepScores, check_failed_share
from rl_core.engine.step_metrics import reward_metrics, rollout_metrics
from rl_core.engine.timing import PhaseTimer
from rl_core.rewards.pool import RewardPool
from rl_core.rollout.requests import collect_groups, requests_for
from rl_core.types import Group, Prompt, RolloutKey, Sampling, Score, TrainGroup


@dataclass(frozen=True, kw_only=True, slots=True)
class StepRecord:
    """What a step leaves: all its groups and scores, what was trained on, metrics, and seconds by phase; `mean_kl` is
    the mean KL to the reference, None without one."""

    step: int
    groups: Sequence[Group]
    scores: Mapping[RolloutKey, Score]
    trained: Sequence[TrainGroup]
    metrics: Mapping[str, float]
    seconds: Mapping[str, float]
    nonfinite_streak: int
    mean_kl: float | None


def take_step(
    prompts: Sequence[Prompt],
    *,
    step: int,
    config: RunConfig,
    workers: WorkerGroup,
    rewards: RewardPool,
    kl_coef: float | None = None,
) -> StepRecord:
    """Sample, score and learn from one rollout batch. `kl_coef` weighs the KL term, None without one.

    Raises:
        AgreementError: engine and trainer disagree on the log-probs.
        TooManyFailedRewards: the reward fails for more than its allowed share.
        StaleWeights: a rollout was drawn with other weights than the trainer's.
    """
    timer = PhaseTimer()
    requests = requests_for(prompts, config.rollout.n, run_seed=config.seed, step=step)
    scoring = StepScores(rewards, prompts)
    with timer.phase("sync"):
        workers.sync_weights()
    with timer.phase("generate"):
        rollouts = scoring.watch(workers.generate(requests, training_sampling(config)))
    with timer.phase("reward_wait"):
        scores = scoring.wait()
    groups = collect_groups(prompts, rollouts, config.rollout.n)
    assert_fresh(groups, workers.policy_version)
    check_failed_share(scores, max_failed_share=config.reward.max_failed_share)
    kept = scored_groups(groups, scores, config=config.algorithm)
    experience = build_experience(kept, scores, config=config.algorithm, kl_coef=kl_coef, workers=workers, timer=timer)
    with timer.phase("update"):
        batches = optimizer_batches(experience.groups, prompts, global_batch_size=config.actor.global_batch_size)
        update = workers.update(
            UpdateBatch(step=step, optimizer_batches=batches * config.actor.ppo_epochs, kl_coef=kl_coef)
        )
    return StepRecord(
        step=step,
        groups=groups,
        scores=scores,
        trained=experience.groups,
        metrics={
            **rollout_metrics(groups),
            **reward_metrics(kept, scores),
            **experience.metrics,
            **update.metrics,
        },
        seconds=timer.result(),
        nonfinite_streak=update.nonfinite_streak,
        mean_kl=experience.mean_kl,
    )


def training_sampling(config: RunConfig) -> Sampling:
    """Training draws from the plain distribution at the configured temperature."""
    return Sampling(temperature=config.rollout.temperature, max_tokens=config.rollout.max_response_length)


class StaleWeights(RuntimeError):
    """The engine sampled with other weights than the trainer holds."""


def assert_fresh(groups: Sequence[Group], policy_version: int) -> None:
    """Every rollout carries the version of its weights; at a learning rate of 1e-6 stale weights would otherwise hide
    below the rounding of bfloat16. Raises StaleWeights."""
    versions = {rollout.policy_version for group in groups for rollout in group.rollouts}
    if versions != {policy_version}:
        raise StaleWeights(f"rollouts of policy version(s) {sorted(versions)}, the trainer is at {policy_version}")


def optimizer_batches(
    trained: Sequence[TrainGroup], prompts: Sequence[Prompt], *, global_batch_size: int
) -> list[list[TrainGroup]]:
    """Groups by optimizer step: `global_batch_size` prompts each, less the groups that were dropped, in the loader's
    order; a batch of which nothing is left is left out."""
    by_uid = {group.prompt.uid: group for group in trained}
    chunks = [prompts[i : i + global_batch_size] for i in range(0, len(prompts), global_batch_size)]
    batches = [[by_uid[prompt.uid] for prompt in chunk if prompt.uid in by_uid] for chunk in chunks]
    return [batch for batch in batches if batch]
