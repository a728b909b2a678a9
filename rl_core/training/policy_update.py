"""The policy update: forward pass, loss, backward pass and optimizer step of each optimizer batch."""

from collections.abc import Sequence

import torch

from rl_core.algorithms.aggregation import BatchTotals
from rl_core.config.run import RunConfig
from rl_core.config.tolerances import agreement_bounds
from rl_core.models.output_head import HeadRows, PolicyOutput
from rl_core.models.packing import PackedTrees, pack_trees
from rl_core.models.pixels import PixelCache
from rl_core.models.policy import PolicyModel
from rl_core.planning.batches import update_token_budget
from rl_core.timing import PhaseTimer
from rl_core.training.agreement import AgreementMeter
from rl_core.training.batches import OptimizerBatch, OptimizerStepReport, TokenSums
from rl_core.training.microbatches import split_into_microbatches, trees_of
from rl_core.training.objective import PolicyObjective, sums_by_group
from rl_core.training.optimizer import PolicyOptimizer
from rl_core.types import TrainGroup


class PolicyUpdate:
    """Computes gradients of the policy loss and updates the policy."""

    def __init__(
        self,
        policy: PolicyModel,
        *,
        reference: PolicyModel | None,
        objective: PolicyObjective,
        optimizer: PolicyOptimizer,
        pixels: PixelCache,
        config: RunConfig,
    ) -> None:
        """Keep what an update works on. The reference is only used by a full KL."""
        self._policy = policy
        self._reference = reference
        self._objective = objective
        self._optimizer = optimizer
        self._pixels = pixels
        self._config = config

    @property
    def needs_reference(self) -> bool:
        """Whether the update computes with the reference's weights."""
        return self._objective.has_full_kl

    def run(
        self, batches: Sequence[OptimizerBatch], *, meter: AgreementMeter | None, timer: PhaseTimer
    ) -> list[OptimizerStepReport]:
        """Take one optimizer step for each batch.

        Args:
            batches: The groups of each step.
            meter: Compares the log-probs of the first batch with the generator's, before the weights change; None
                skips the comparison.
            timer: Measures `forward_backward` and `optimizer`.

        Raises:
            AgreementError: the log-probs of generator and trainer break one of the bounds in section `rollout`, or no
                token of the first batch could be compared.
        """
        reports = []
        for batch in batches:
            with timer.phase("forward_backward"):
                tokens = self.accumulate_gradient(batch, meter=meter)
            if meter is not None:
                meter.check(agreement_bounds(self._config))
                meter = None
            with timer.phase("optimizer"):
                reports.append(OptimizerStepReport(tokens=tokens, outcome=self._optimizer.step()))
        return reports

    def accumulate_gradient(self, batch: OptimizerBatch, *, meter: AgreementMeter | None = None) -> list[TokenSums]:
        """Add the gradient of the batch's loss, micro-batch by micro-batch, to the policy's parameters."""
        return [
            self.backward(microbatch, totals=batch.totals, meter=meter)
            for microbatch in split_into_microbatches(batch.groups, token_budget=update_token_budget(self._config))
        ]

    def backward(
        self, microbatch: Sequence[TrainGroup], *, totals: BatchTotals, meter: AgreementMeter | None = None
    ) -> TokenSums:
        """Add the gradient of one micro-batch's part of the loss."""
        samples = [sample for group in microbatch for sample in group.samples]
        output = self._forward(microbatch)
        loss = self._objective.loss(output, samples, totals=totals)
        if meter is not None:
            meter.add(samples, output.log_probs.detach().float().cpu().numpy())
        loss.total.backward()  # type: ignore[no-untyped-call]
        return sums_by_group(microbatch, loss.per_token, loss.weights)

    def _forward(self, groups: Sequence[TrainGroup]) -> PolicyOutput:
        packed = pack_trees(
            trees_of(groups), pixels=self._pixels, model_config=self._policy.config, device=self._policy.device
        )
        output: PolicyOutput = self._policy(
            packed,
            temperature=self._config.rollout.temperature,
            entropy="gradient" if self._objective.has_entropy_bonus else "value",
            reference=self._reference_rows(packed),
        )
        return output

    def _reference_rows(self, packed: PackedTrees) -> HeadRows | None:
        if not self._objective.has_full_kl:
            return None
        if self._reference is None:
            raise RuntimeError("algorithm.kl.penalty is full: call load_reference before the update")
        with torch.no_grad():
            return self._reference.head_rows(packed)
