"""The critic's update: forward pass, clipped regression loss, backward pass and optimizer step of each optimizer
batch."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from rl_core.algorithms.aggregation import BatchTotals
from rl_core.config.training import CriticConfig
from rl_core.distributed.collectives import sum_gradients
from rl_core.distributed.ranks import LONE, Ranks
from rl_core.models.packing import pack_trees
from rl_core.models.pixels import PixelCache
from rl_core.models.value import ValueModel
from rl_core.training.batches import OptimizerBatch, OptimizerStepReport, TokenSums
from rl_core.training.equal_passes import RankPass, equal_passes
from rl_core.training.microbatches import split_into_microbatches
from rl_core.training.objective import concatenated, loss_weights, sums_by_group
from rl_core.training.optimizer import PolicyOptimizer
from rl_core.types import Float32Array, TrainGroup, TrainSample


class ValueUpdate:
    """Computes gradients of the value loss and updates the critic. Each rank has its own part of every batch."""

    def __init__(
        self,
        critic: ValueModel,
        *,
        optimizer: PolicyOptimizer,
        pixels: PixelCache,
        config: CriticConfig,
        token_budget: int,
        ranks: Ranks = LONE,
    ) -> None:
        self._critic = critic
        self._optimizer = optimizer
        self._pixels = pixels
        self._config = config
        self._token_budget = token_budget
        self._ranks = ranks

    def run(self, batches: Sequence[OptimizerBatch]) -> list[OptimizerStepReport]:
        """Take one optimizer step for each batch. Raises ValueError if a sample has no values or returns."""
        return [
            OptimizerStepReport(tokens=self.accumulate_gradient(batch), outcome=self._optimizer.step())
            for batch in batches
        ]

    def accumulate_gradient(self, batch: OptimizerBatch) -> list[TokenSums]:
        """Add the gradient of the batch's loss, micro-batch by micro-batch, to the critic's parameters."""
        microbatches = split_into_microbatches(batch.groups, token_budget=self._token_budget)
        passes = equal_passes(microbatches, self._ranks)
        sums = [self.backward(one, totals=batch.totals) for one in passes]
        sum_gradients(self._critic, self._ranks)
        return [found for found in sums if found is not None]

    def backward(self, one: RankPass[TrainGroup], *, totals: BatchTotals) -> TokenSums | None:
        """Add the gradient of one micro-batch's part of the loss. Returns None if it has fillers only."""
        every = self._forward(one)
        if not one.groups:
            one.backward(every, None)
            return None
        values = every[: one.num_tokens] if one.fillers else every
        samples = [sample for group in one.groups for sample in group.samples]
        old, returns = zip(*(_values_and_returns(sample) for sample in samples), strict=True)
        loss = clipped_value_loss(
            values=values,
            old_values=concatenated(old, like=values),
            returns=concatenated(returns, like=values),
            cliprange_value=self._config.cliprange_value,
        )
        weights = loss_weights(samples, mode=self._config.loss_avg_mode, totals=totals).to(values.device)
        one.backward(every, (weights * loss.per_token).sum())
        per_token = {"critic/vf_loss": loss.per_token, "critic/vf_clipfrac": loss.clipped, "critic/vpred_mean": values}
        return sums_by_group(one.groups, per_token, weights)

    def _forward(self, one: RankPass[TrainGroup]) -> torch.Tensor:
        packed = pack_trees(
            one.trees, pixels=self._pixels, model_config=self._critic.config, device=self._critic.device
        )
        values: torch.Tensor = self._critic(packed)
        return values


@dataclass(frozen=True, kw_only=True, slots=True)
class ValueLoss:
    """[K] each: the loss of every token, and whether the clipped value determines it (bool)."""

    per_token: torch.Tensor
    clipped: torch.Tensor


def clipped_value_loss(
    *, values: torch.Tensor, old_values: torch.Tensor, returns: torch.Tensor, cliprange_value: float
) -> ValueLoss:
    """L = max((v - R)^2, (clip(v, old +- range) - R)^2) / 2, pessimistic like PPO's policy loss; [K] each. The gradient
    flows through `values`; the old ones are the critic's before the update."""
    near = torch.clamp(values, old_values - cliprange_value, old_values + cliprange_value)
    unclipped, clipped = (values - returns).square(), (near - returns).square()
    return ValueLoss(per_token=0.5 * torch.maximum(unclipped, clipped), clipped=unclipped < clipped)


def _values_and_returns(sample: TrainSample) -> tuple[Float32Array, Float32Array]:
    if sample.values is None or sample.returns is None:
        raise ValueError(
            "the critic is updated, but a sample has no values and returns: use an estimator that computes them (gae)"
        )
    return sample.values, sample.returns
