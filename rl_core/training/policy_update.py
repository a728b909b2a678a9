"""The policy update: forward, loss, backward and optimizer step of every optimizer batch of a training step."""

from collections.abc import Sequence

import torch

from rl_core.algorithms.aggregation import BatchTotals
from rl_core.config.run import RunConfig
from rl_core.config.tolerances import agreement_tolerance
from rl_core.models.output_head import HeadRows, PolicyOutput
from rl_core.models.packing import PackedTrees, pack_trees
from rl_core.models.pixels import PixelCache
from rl_core.models.policy import PolicyModel
from rl_core.planning.batches import longest_sequence
from rl_core.timing import PhaseTimer
from rl_core.training.agreement import AgreementMeter
from rl_core.training.metrics import TokenMeans, optimizer_metrics
from rl_core.training.microbatches import batch_totals, split_into_microbatches, trees_of
from rl_core.training.objective import PolicyObjective
from rl_core.training.optimizer import PolicyOptimizer
from rl_core.types import TrainGroup


class PolicyUpdate:
    """Computes gradients of one policy and moves it."""

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
        """Bind what an update works on; the reference is read where the objective has a full KL."""
        self._policy = policy
        self._reference = reference
        self._objective = objective
        self._optimizer = optimizer
        self._pixels = pixels
        self._config = config
        self.timer = PhaseTimer()

    def run(
        self, optimizer_batches: Sequence[Sequence[TrainGroup]], *, policy_version: int, check_agreement: bool
    ) -> dict[str, float]:
        """One optimizer step a batch; the first is compared with the engine before the weights move.

        Args:
            optimizer_batches: The groups of each step.
            policy_version: Of the weights before the update; what others have drawn is not compared.
            check_agreement: Compare at all.

        Returns:
            Metrics: token means over the optimizer batches, functions of config, data and seed only.

        Raises:
            AgreementError: engine and trainer disagree beyond `rollout.max_log_prob_gap` or its mean, or nothing of the
                first batch could be compared that should have been.
        """
        means, outcomes = TokenMeans(), []
        gaps = (
            AgreementMeter(policy_version, keeps_surplus=self._config.algorithm.keeps_surplus)
            if check_agreement
            else None
        )
        for groups in optimizer_batches:
            with self.timer.phase("forward_backward"):
                self.accumulate_gradient(groups, means=means, gaps=gaps)
            if gaps is not None:
                gaps.check(agreement_tolerance(self._config))
                means.constants |= gaps.metrics()
                gaps = None
            with self.timer.phase("optimizer"):
                outcomes.append(self._optimizer.step())
        means.constants |= optimizer_metrics("actor", outcomes)
        return means.result()

    def accumulate_gradient(
        self, groups: Sequence[TrainGroup], *, means: TokenMeans, gaps: AgreementMeter | None
    ) -> None:
        """Add the gradient of the batch's loss, micro-batch by micro-batch, to the policy's parameters."""
        totals = self.totals(groups)
        budget = self._config.actor.micro_batch_size_per_device_for_update * longest_sequence(self._config)
        for microbatch in split_into_microbatches(groups, token_budget=budget):
            self.backward(microbatch, totals=totals, means=means, gaps=gaps)

    def totals(self, groups: Sequence[TrainGroup]) -> BatchTotals:
        """The denominators of an optimizer batch."""
        return batch_totals(groups, longest_response=self._config.rollout.max_response_length)

    def backward(
        self, microbatch: Sequence[TrainGroup], *, totals: BatchTotals, means: TokenMeans, gaps: AgreementMeter | None
    ) -> None:
        """Add the gradient of one micro-batch's part of the loss."""
        samples = [sample for group in microbatch for sample in group.samples]
        output = self._forward(microbatch)
        loss = self._objective.loss(output, samples, totals=totals)
        if gaps is not None:
            gaps.add(samples, output.log_probs.detach().float().cpu().numpy())
        means.add(loss.per_token, loss.weights)
        loss.total.backward()  # type: ignore[no-untyped-call]

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
            raise RuntimeError("algorithm.kl.penalty full before load_reference")
        with torch.no_grad():
            return self._reference.head_rows(packed)
