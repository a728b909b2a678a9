"""What an update is given, and what it reports: values that cross from the driver to the workers and back."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rl_core.algorithms.aggregation import BatchTotals
from rl_core.training.agreement import LogProbGaps
from rl_core.training.optimizer import StepOutcome
from rl_core.types import TrainGroup


@dataclass(frozen=True, kw_only=True, slots=True)
class OptimizerBatch:
    """What one optimizer step learns from.

    Attributes:
        groups: The groups of the step, or the part of them that one worker computes.
        totals: The size of the whole step, whoever computes its parts: the denominators of the loss.
    """

    groups: Sequence[TrainGroup]
    totals: BatchTotals

    @classmethod
    def of(cls, groups: Sequence[TrainGroup], *, longest_response: int) -> "OptimizerBatch":
        """All groups of a step, whose responses may have `longest_response` tokens."""
        lengths = [len(sample.rollout.response_ids) for group in groups for sample in group.samples]
        totals = BatchTotals(tokens=sum(lengths), sequences=len(lengths), longest_response=longest_response)
        return cls(groups=groups, totals=totals)


@dataclass(frozen=True, kw_only=True, slots=True)
class UpdateBatch:
    """What policy and critic learn from in one training step.

    Attributes:
        policy: One batch for each optimizer step of the policy; with several PPO epochs each batch comes again. Empty
            while the critic warms up: the policy stays as it is.
        critic: The same for the critic; empty without one.
        kl_coef: Weight of the KL term in this step's loss or reward; None without one.
        check_agreement: Compare the log-probs of generator and trainer on the first optimizer batch, before the weights
            move, for the rollouts that these weights have drawn.
    """

    policy: Sequence[OptimizerBatch]
    critic: Sequence[OptimizerBatch] = ()
    kl_coef: float | None = None
    check_agreement: bool = True


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenSums:
    """Weighted sums over the response tokens of groups: the driver adds them up, whichever worker made them.

    Attributes:
        sums: Metric name -> [G] the sum of weight x value over the tokens of each group of a micro-batch.
        weights: [G] the sum of the weights alone.
    """

    sums: Mapping[str, Sequence[float]]
    weights: Sequence[float]


@dataclass(frozen=True, kw_only=True, slots=True)
class OptimizerStepReport:
    """What one optimizer step reports.

    Attributes:
        tokens: Sums over the tokens, one entry for each micro-batch that was computed.
        outcome: Gradient norm, learning rate, and whether the weights moved.
    """

    tokens: Sequence[TokenSums]
    outcome: StepOutcome


@dataclass(frozen=True, kw_only=True, slots=True)
class UpdateResult:
    """What an update reports. All but `seconds` are functions of config, data and seed.

    Attributes:
        policy: A report for each optimizer step of the policy.
        critic: A report for each optimizer step of the critic.
        gaps: How far the log-probs of generator and trainer lay apart before the first step; None when that was not
            asked for.
        policy_version: Version of the weights after the update.
        nonfinite_streak: Optimizer steps in a row, up to now, that were skipped for a non-finite gradient: the policy's
            or the critic's, whichever are more.
        seconds: Parts of its wall-clock time: `forward_backward`, `optimizer`, `update_critic`.
    """

    policy: Sequence[OptimizerStepReport]
    critic: Sequence[OptimizerStepReport]
    gaps: LogProbGaps | None
    policy_version: int
    nonfinite_streak: int
    seconds: Mapping[str, float] = field(compare=False)
