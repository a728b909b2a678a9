"""The policy update: forward pass, loss, backward pass and optimizer step of each optimizer batch."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from rl_core.algorithms.aggregation import BatchTotals
from rl_core.config.run import RunConfig
from rl_core.config.tolerances import agreement_bounds
from rl_core.device import finish_kernels
from rl_core.distributed.collectives import sum_gradients
from rl_core.distributed.ranks import LONE, Ranks
from rl_core.distributed.shards import reshard
from rl_core.models.output_head import HeadRows, PolicyOutput
from rl_core.models.packing import PackedTrees, pack_trees
from rl_core.models.pixels import PixelCache
from rl_core.models.policy import PolicyModel
from rl_core.planning.batches import update_token_budget
from rl_core.timing import PhaseTimer
from rl_core.training.agreement import AgreementMeter
from rl_core.training.batches import OptimizerBatch, OptimizerStepReport, TokenSums
from rl_core.training.equal_passes import RankPass, equal_passes
from rl_core.training.microbatches import split_into_microbatches
from rl_core.training.objective import PolicyObjective, sums_by_group
from rl_core.training.optimizer import PolicyOptimizer
from rl_core.types import TrainGroup


@dataclass(frozen=True, kw_only=True, slots=True)
class PolicyUpdate:
    """Computes gradients of the policy loss and updates the policy. The reference is only used by a full KL. Each rank
    has its own part of every batch, and takes the same optimizer steps."""

    policy: PolicyModel
    reference: PolicyModel | None
    objective: PolicyObjective
    optimizer: PolicyOptimizer
    pixels: PixelCache
    config: RunConfig
    ranks: Ranks = LONE

    @property
    def needs_reference(self) -> bool:
        """Whether the update computes with the reference's weights."""
        return self.objective.has_full_kl

    def run(
        self, batches: Sequence[OptimizerBatch], *, meter: AgreementMeter | None, timer: PhaseTimer
    ) -> list[OptimizerStepReport]:
        """Take one optimizer step for each batch. Before the weights change, the meter compares the log-probs of the
        first batch with the generator's; it raises AgreementError as `AgreementMeter.check`."""
        reports = []
        for batch in batches:
            tokens = self.accumulate_gradient(batch, meter=meter, timer=timer)
            if meter is not None:
                meter.share(self.ranks)
                meter.check(agreement_bounds(self.config))
                meter = None
            with timer.phase("optimizer"):
                reports.append(OptimizerStepReport(tokens=tokens, outcome=self.optimizer.step()))
        if self.reference is not None and self.needs_reference:
            reshard(self.reference)  # its head stays gathered after a pass
        return reports

    def accumulate_gradient(
        self, batch: OptimizerBatch, *, meter: AgreementMeter | None = None, timer: PhaseTimer | None = None
    ) -> list[TokenSums]:
        """Add the gradient of the batch's loss, micro-batch by micro-batch, to the policy's parameters."""
        timer = timer or PhaseTimer()
        with timer.phase("forward_backward"):
            microbatches = split_into_microbatches(batch.groups, token_budget=update_token_budget(self.config))
            passes = equal_passes(microbatches, self.ranks)
            sums = [self.backward(one, totals=batch.totals, meter=meter) for one in passes]
            if self.ranks.replicas is not None:
                finish_kernels(self.policy.device)  # or the exchange would be counted with what it waits for
        if self.ranks.replicas is not None:
            with timer.phase("exchange"):
                sum_gradients(self.policy, self.ranks)
        return [found for found in sums if found is not None]

    def backward(
        self, one: RankPass[TrainGroup], *, totals: BatchTotals, meter: AgreementMeter | None = None
    ) -> TokenSums | None:
        """Add the gradient of one micro-batch's part of the loss. Returns None if it has fillers only."""
        every = self._forward(one)
        if not one.groups:
            one.backward(every.log_probs, None)
            return None
        samples = [sample for group in one.groups for sample in group.samples]
        output = every.first(one.num_tokens) if one.fillers else every
        loss = self.objective.loss(output, samples, totals=totals)
        if meter is not None:
            meter.add([sample.rollout for sample in samples], output.log_probs.detach().float().cpu().numpy())
        one.backward(every.log_probs, loss.total)
        return sums_by_group(one.groups, loss.per_token, loss.weights)

    def _forward(self, one: RankPass[TrainGroup]) -> PolicyOutput:
        packed = pack_trees(one.trees, pixels=self.pixels, model_config=self.policy.config, device=self.policy.device)
        output: PolicyOutput = self.policy(
            packed,
            temperature=self.config.rollout.temperature,
            entropy="gradient" if self.objective.has_entropy_bonus else "value",
            reference=self._reference_rows(packed),
        )
        return output

    def _reference_rows(self, packed: PackedTrees) -> HeadRows | None:
        if not self.objective.has_full_kl:
            return None
        assert self.reference is not None, "loaded"
        with torch.no_grad():
            return self.reference.head_rows(packed)
