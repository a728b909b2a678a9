"""One training step, in the order in which it happens."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rl_core.config.run import RunConfig
from rl_core.config.training import ActorConfig, CriticConfig
from rl_core.loop.experience import build_experience
from rl_core.loop.sampling import NextPrompts, RolloutSampler, no_more_prompts
from rl_core.loop.step_metrics import reward_metrics, rollout_metrics
from rl_core.loop.surplus import NOTHING_KEPT, Surplus
from rl_core.rewards.pool import RewardPool
from rl_core.timing import PhaseTimer
from rl_core.types import Group, Prompt, RolloutKey, Score, TrainGroup
from rl_core.workers.protocol import UpdateBatch, WorkerGroup


@dataclass(frozen=True, kw_only=True, slots=True)
class StepRecord:
    """What a step leaves: all groups that it has drawn and their scores, what was trained on, metrics, and seconds by
    phase; `mean_kl` is the mean KL to the reference, None without one; `stale` are groups of the step before that were
    trained on, `surplus` those that the next step may train on."""

    step: int
    groups: Sequence[Group]
    scores: Mapping[RolloutKey, Score]
    trained: Sequence[TrainGroup]
    metrics: Mapping[str, float]
    seconds: Mapping[str, float]
    nonfinite_streak: int
    mean_kl: float | None
    stale: Surplus = NOTHING_KEPT
    surplus: Surplus = NOTHING_KEPT


def take_step(
    prompts: Sequence[Prompt],
    *,
    step: int,
    config: RunConfig,
    workers: WorkerGroup,
    rewards: RewardPool,
    kl_coef: float | None = None,
    next_prompts: NextPrompts = no_more_prompts,
    kept: Surplus = NOTHING_KEPT,
) -> StepRecord:
    """Sample, score and learn from one rollout batch.

    Args:
        prompts: The rollout batch; with group filtering its first draw.
        step: From 1; keys every draw.
        config: The run.
        workers: Hold policy, reference, critic and engine.
        rewards: Judge.
        kl_coef: Weight of the KL term, None without one.
        next_prompts: Gives the next draws of the loader, where groups are filtered.
        kept: The surplus of the step before, where the filter keeps it.

    Raises:
        AgreementError: engine and trainer disagree on the log-probs.
        TooManyFailedRewards: the reward fails for more than its allowed share.
        StaleWeights: a rollout was drawn with other weights than the trainer's.
        TooFewInformativeGroups: group filtering has not filled the batch.
    """
    timer = PhaseTimer()
    with timer.phase("sync"):
        workers.sync_weights()
    sampler = RolloutSampler(step=step, config=config, workers=workers, rewards=rewards, timer=timer)
    drawn = sampler.batch(prompts, next_prompts=next_prompts, kept=kept)
    experience = build_experience(drawn, config=config.algorithm, kl_coef=kl_coef, workers=workers, timer=timer)
    with timer.phase("update"):
        batch = update_batch(experience.groups, drawn.prompts, step=step, config=config, kl_coef=kl_coef)
        update = workers.update(batch)
    timer.split("update", update.seconds)
    return StepRecord(
        step=step,
        groups=drawn.groups,
        scores=drawn.scores,
        trained=experience.groups,
        metrics={
            **rollout_metrics(drawn.groups),
            **reward_metrics(drawn.scored, drawn.scores),
            **drawn.metrics,
            **experience.metrics,
            **update.metrics,
        },
        seconds=timer.result(),
        nonfinite_streak=update.nonfinite_streak,
        mean_kl=experience.mean_kl,
        stale=drawn.stale,
        surplus=drawn.surplus,
    )


def update_batch(
    trained: Sequence[TrainGroup], prompts: Sequence[Prompt], *, step: int, config: RunConfig, kl_coef: float | None
) -> UpdateBatch:
    """What policy and critic learn from, each in optimizer batches and epochs of its own. The policy rests in the steps
    before `trainer.critic_warmup`."""

    def batches(owner: ActorConfig | CriticConfig) -> list[list[TrainGroup]]:
        return optimizer_batches(trained, prompts, global_batch_size=owner.global_batch_size) * owner.ppo_epochs

    return UpdateBatch(
        optimizer_batches=batches(config.actor) if step >= config.trainer.critic_warmup else [],
        critic_batches=[] if config.critic is None else batches(config.critic),
        kl_coef=kl_coef,
    )


def optimizer_batches(
    trained: Sequence[TrainGroup], prompts: Sequence[Prompt], *, global_batch_size: int
) -> list[list[TrainGroup]]:
    """Groups by optimizer step: `global_batch_size` prompts each, less the groups that were dropped, in the loader's
    order; a batch of which nothing is left is left out."""
    by_uid = {group.prompt.uid: group for group in trained}
    chunks = [prompts[i : i + global_batch_size] for i in range(0, len(prompts), global_batch_size)]
    batches = [[by_uid[prompt.uid] for prompt in chunk if prompt.uid in by_uid] for chunk in chunks]
    return [batch for batch in batches if batch]
