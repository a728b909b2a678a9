"""The critic's update: forward, loss, backward and optimizer step of every optimizer batch of a training step."""

from collections.abc import Sequence

import torch

from rl_core.algorithms.aggregation import BatchTotals, token_weights
from rl_core.algorithms.value_loss import ValueLoss, clipped_value_loss
from rl_core.config.training import CriticConfig
from rl_core.models.packing import pack_trees
from rl_core.models.pixels import PixelCache
from rl_core.models.value import ValueModel
from rl_core.training.metrics import TokenMeans, optimizer_metrics
from rl_core.training.microbatches import batch_totals, split_into_microbatches, trees_of
from rl_core.training.objective import concatenated
from rl_core.training.optimizer import PolicyOptimizer
from rl_core.types import Float32Array, TrainGroup, TrainSample


class ValueUpdate:
    """Computes gradients of one critic and moves it."""

    def __init__(
        self,
        critic: ValueModel,
        *,
        optimizer: PolicyOptimizer,
        pixels: PixelCache,
        config: CriticConfig,
        longest_prompt: int,
        longest_response: int,
    ) -> None:
        """Bind what an update works on.

        Args:
            critic: What is moved.
            optimizer: Its optimizer.
            pixels: Pixel tensors of the step's images.
            config: How.
            longest_prompt: Tokens that a prompt may have.
            longest_response: Tokens that a response may have.
        """
        self._critic = critic
        self._optimizer = optimizer
        self._pixels = pixels
        self._config = config
        self._longest_response = longest_response
        self._token_budget = config.micro_batch_size_per_device_for_update * (longest_prompt + longest_response)

    def run(self, optimizer_batches: Sequence[Sequence[TrainGroup]]) -> dict[str, float]:
        """One optimizer step a batch.

        Returns:
            Metrics: token means over the optimizer batches, functions of config, data and seed only.

        Raises:
            ValueError: a sample has no values or returns.
        """
        means, outcomes = TokenMeans(), []
        for groups in optimizer_batches:
            self.accumulate_gradient(groups, means=means)
            outcomes.append(self._optimizer.step())
        means.constants |= optimizer_metrics("critic", outcomes)
        return means.result()

    def accumulate_gradient(self, groups: Sequence[TrainGroup], *, means: TokenMeans) -> None:
        """Add the gradient of the batch's loss, micro-batch by micro-batch, to the critic's parameters."""
        totals = batch_totals(groups, longest_response=self._longest_response)
        for microbatch in split_into_microbatches(groups, token_budget=self._token_budget):
            self.backward(microbatch, totals=totals, means=means)

    def backward(self, microbatch: Sequence[TrainGroup], *, totals: BatchTotals, means: TokenMeans) -> None:
        """Add the gradient of one micro-batch's part of the loss."""
        samples = [sample for group in microbatch for sample in group.samples]
        values = self._forward(microbatch)
        loss = value_loss(values, samples, cliprange_value=self._config.cliprange_value)
        lengths = [len(sample.rollout.response_ids) for sample in samples]
        weights = token_weights(lengths, mode=self._config.loss_avg_mode, totals=totals).to(values.device)
        means.add(
            {"critic/vf_loss": loss.per_token, "critic/vf_clipfrac": loss.clipped, "critic/vpred_mean": values}, weights
        )
        (weights * loss.per_token).sum().backward()  # type: ignore[no-untyped-call]

    def _forward(self, groups: Sequence[TrainGroup]) -> torch.Tensor:
        packed = pack_trees(
            trees_of(groups), pixels=self._pixels, model_config=self._critic.config, device=self._critic.device
        )
        values: torch.Tensor = self._critic(packed)
        return values


def value_loss(values: torch.Tensor, samples: Sequence[TrainSample], *, cliprange_value: float) -> ValueLoss:
    """The clipped loss of the values [K] of the samples' tokens, in order. Raises as ValueUpdate.run does."""
    old, returns = zip(*(_judged(sample) for sample in samples), strict=True)
    return clipped_value_loss(
        values=values,
        old_values=concatenated(old, like=values),
        returns=concatenated(returns, like=values),
        cliprange_value=cliprange_value,
    )


def _judged(sample: TrainSample) -> tuple[Float32Array, Float32Array]:
    if sample.values is None or sample.returns is None:
        raise ValueError("a critic is updated, but a sample has no values and returns: adv_estimator gae gives them")
    return sample.values, sample.returns
