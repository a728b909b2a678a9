"""A worker's critic: the value model with its optimizer, its update, and how both are saved in a checkpoint."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import torch

from rl_core.algorithms.aggregation import BatchTotals
from rl_core.checkpoints.host_copy import HostCopies
from rl_core.config.run import RunConfig
from rl_core.config.training import CriticConfig
from rl_core.distributed.collectives import sum_gradients
from rl_core.distributed.ranks import LONE, Ranks
from rl_core.files import read_json
from rl_core.models.packing import pack_trees
from rl_core.models.pixels import PixelCache
from rl_core.models.value import ValueModel
from rl_core.planning.batches import longest_sequence, optimizer_steps_per_step
from rl_core.training.batches import OptimizerBatch, OptimizerStepReport, TokenSums
from rl_core.training.equal_passes import RankPass, equal_passes
from rl_core.training.host_memory import HostWeights
from rl_core.training.log_prob_pass import compute_values
from rl_core.training.microbatches import split_into_microbatches
from rl_core.training.objective import concatenated, loss_weights, sums_by_group
from rl_core.training.optimizer import PolicyOptimizer
from rl_core.training.saved_model import ModuleState, load_optimizer, load_weights
from rl_core.types import Float32Array, Group, TrainGroup


class Critic:
    """Estimates the values of tokens, and learns from the returns; `total_steps` are the optimizer steps of the run."""

    def __init__(
        self,
        model: ValueModel,
        *,
        config: RunConfig,
        critic: CriticConfig,
        pixels: PixelCache,
        total_steps: int,
        ranks: Ranks = LONE,
    ) -> None:
        self._model = model
        self._ranks = ranks
        self._config = critic
        self._pixels = pixels
        self._update_budget = critic.update_sequences * longest_sequence(config)
        self._experience_budget = critic.experience_sequences * longest_sequence(config)
        self._optimizer = PolicyOptimizer(
            model,
            config=critic.optim,
            max_grad_norm=critic.max_grad_norm,
            total_steps=total_steps,
            steps_at_once=optimizer_steps_per_step(config, critic),
            in_host_memory=config.trainer.offloads != "none",
        )
        self._weights = HostWeights(model) if config.trainer.offloads == "all" else None

    @property
    def nonfinite_streak(self) -> int:
        """Optimizer steps in a row, up to now, that were skipped because of a non-finite gradient."""
        return self._optimizer.nonfinite_streak

    def values(self, groups: Sequence[Group]) -> list[list[Float32Array]]:
        """[group][rollout] -> [R] the value before each token."""
        with self._on_device():
            return compute_values(
                self._model,
                groups,
                pixels=self._pixels,
                token_budget=self._experience_budget,
                ranks=self._ranks,
            )

    def update(self, batches: Sequence[OptimizerBatch]) -> list[OptimizerStepReport]:
        """One optimizer step for each batch, of which this rank has its own part."""
        with self._on_device():
            return [
                OptimizerStepReport(tokens=self.accumulate_gradient(batch), outcome=self._optimizer.step())
                for batch in batches
            ]

    def accumulate_gradient(self, batch: OptimizerBatch) -> list[TokenSums]:
        """Add the gradient of the batch's loss, micro-batch by micro-batch, to the critic's parameters."""
        microbatches = split_into_microbatches(batch.groups, token_budget=self._update_budget)
        passes = equal_passes(microbatches, self._ranks)
        sums = [self.backward(one, totals=batch.totals) for one in passes]
        sum_gradients(self._model, self._ranks)
        return [found for found in sums if found is not None]

    def backward(self, one: RankPass[TrainGroup], *, totals: BatchTotals) -> TokenSums | None:
        """Add the gradient of one micro-batch's part of the loss. Returns None if it has fillers only."""
        packed = pack_trees(one.trees, pixels=self._pixels, model_config=self._model.config, device=self._model.device)
        every: torch.Tensor = self._model(packed)
        if not one.groups:
            one.backward(every, None)
            return None
        values = every[: one.num_tokens] if one.fillers else every
        samples = [sample for group in one.groups for sample in group.samples]
        loss = clipped_value_loss(
            values=values,
            old_values=concatenated((sample.values for sample in samples), like=values),
            returns=concatenated((sample.returns for sample in samples), like=values),
            cliprange_value=self._config.cliprange_value,
        )
        weights = loss_weights(samples, mode=self._config.loss_avg_mode, totals=totals).to(values.device)
        one.backward(every, (weights * loss.per_token).sum())
        per_token = {"critic/vf_loss": loss.per_token, "critic/vf_clipfrac": loss.clipped, "critic/vpred_mean": values}
        return sums_by_group(one.groups, per_token, weights)

    def _on_device(self) -> AbstractContextManager[None]:
        return nullcontext() if self._weights is None else self._weights.on_device()

    def state(self, *, model_only: bool, copies: HostCopies | None) -> tuple[ModuleState, Mapping[str, int]]:
        """What a checkpoint holds, and the counters."""
        state = ModuleState.of(self._model, self._optimizer, trained_only=False, model_only=model_only, copies=copies)
        return state, self._optimizer.counters()

    def load(self, folder: Path, *, model_only: bool) -> None:
        """Load model, optimizer and counters, equal to the bit. With `model_only`, the moments start from zero. Raises
        MismatchedState as `load_sharded`."""
        with self._ranks.succeed_together():
            counters = read_json(folder / "counters.json")
        moments = None if model_only else folder / "optimizer"
        with self._on_device():  # the optimizer's state is placed by the parameters that it belongs to
            group = self._ranks.checkpoint_group
            lower_bits = load_weights(folder / "model", self._model, trained_only=False, process_group=group)
            load_optimizer(
                moments,
                self._model,
                self._optimizer,
                lower_bits=lower_bits,
                counters=counters,
                process_group=group,
            )


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
