"""The input of an update, the optimizer batches of a step, and its results: what passes between driver and workers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rl_core.algorithms.aggregation import BatchTotals
from rl_core.config.run import RunConfig
from rl_core.config.training import UpdateConfig
from rl_core.training.agreement import LogProbGap
from rl_core.training.microbatches import AnyGroup, response_tokens
from rl_core.training.optimizer import StepOutcome
from rl_core.types import Prompt, TrainGroup


@dataclass(frozen=True, kw_only=True, slots=True)
class OptimizerBatch:
    """What one optimizer step learns from."""

    groups: Sequence[TrainGroup]  # The groups of the step, or the part of them that one worker computes
    totals: BatchTotals  # The size of the whole step, over all workers: the denominators of the loss

    @classmethod
    def of(cls, groups: Sequence[TrainGroup], *, longest_response: int) -> "OptimizerBatch":
        """The batch of all groups of a step. Only samples in the loss count in its size."""
        samples = [sample for group in groups for sample in group.samples]
        lengths = [len(sample.rollout.response_ids) for sample in samples if sample.in_loss]
        totals = BatchTotals(tokens=sum(lengths), sequences=len(lengths), longest_response=longest_response)
        return cls(groups=groups, totals=totals)


@dataclass(frozen=True, kw_only=True, slots=True)
class UpdateBatch:
    """What policy and critic learn from in one training step: one batch for each optimizer step, and with several PPO
    epochs each batch repeated."""

    policy: Sequence[OptimizerBatch]  # Empty while the critic warms up, when the policy is not updated
    critic: Sequence[OptimizerBatch] = ()  # Empty if there is no critic
    kl_coef: float | None = None  # Weight of the KL term in this step's loss or reward; None if there is no KL term
    # Compare the log-probs of generator and trainer on the first optimizer batch, before the weights change, for the
    # rollouts that these weights have sampled
    check_agreement: bool = True

    @property
    def response_tokens(self) -> int:
        """What all its passes compute together."""
        return sum(response_tokens(batch.groups) for batch in [*self.policy, *self.critic])


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenSums:
    """Weighted sums over the response tokens of each group, which the driver adds up over all workers."""

    # Metric name -> [G] the sum of weight x value over the tokens of each group of a micro-batch
    sums: Mapping[str, Sequence[float]]
    weights: Sequence[float]  # [G] the sum of the weights


@dataclass(frozen=True, kw_only=True, slots=True)
class OptimizerStepReport:
    """The results of one optimizer step; `tokens` has one entry for each micro-batch."""

    tokens: Sequence[TokenSums]
    outcome: StepOutcome


@dataclass(frozen=True, kw_only=True, slots=True)
class UpdateResult:
    """The results of an update, one report for each optimizer step. All but `seconds` are functions of config, data and
    seed."""

    policy: Sequence[OptimizerStepReport]
    critic: Sequence[OptimizerStepReport]
    log_prob_gap: LogProbGap | None  # before the first optimizer step; None if log-probs were not compared
    nonfinite_streak: int  # of skipped steps up to now; the larger number of policy and critic
    # `forward_backward`, `exchange` (with the wait for the slowest rank), `optimizer`, `update_critic`
    seconds: Mapping[str, float] = field(compare=False)


def update_batch(
    groups: Sequence[TrainGroup], prompts: Sequence[Prompt], *, step: int, config: RunConfig, kl_coef: float | None
) -> UpdateBatch:
    """The optimizer batches of policy and critic; each has its own batch size and number of PPO epochs. The policy has
    none in the steps before `trainer.critic_warmup`, and a batch without any sample in the loss is left out."""

    def batches(owner: UpdateConfig) -> list[OptimizerBatch]:
        parts = split_by_optimizer_step(groups, prompts, global_batch_size=owner.global_batch_size)
        longest = config.most_sampled
        batches = [OptimizerBatch.of(part, longest_response=longest) for part in parts]
        return [batch for batch in batches if batch.totals.sequences] * owner.ppo_epochs

    return UpdateBatch(
        policy=batches(config.actor) if step >= config.trainer.critic_warmup else [],
        critic=[] if config.critic is None else batches(config.critic),
        kl_coef=kl_coef,
    )


def split_by_optimizer_step(
    groups: Sequence[AnyGroup], prompts: Sequence[Prompt], *, global_batch_size: int
) -> list[list[AnyGroup]]:
    """Groups by optimizer step, in the order of the loader: `global_batch_size` prompts each, without the groups that
    were left out. A step without any group is left out."""
    by_uid = {group.prompt.uid: group for group in groups}
    chunks = [prompts[i : i + global_batch_size] for i in range(0, len(prompts), global_batch_size)]
    parts = [[by_uid[prompt.uid] for prompt in chunk if prompt.uid in by_uid] for chunk in chunks]
    return [part for part in parts if part]
