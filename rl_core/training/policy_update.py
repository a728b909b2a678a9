"""The policy update: forward, loss, backward and optimizer step of every optimizer batch of a training step."""

from collections.abc import Iterator, Sequence

import numpy as np
import torch

from rl_core.algorithms.aggregation import BatchTotals, token_weights
from rl_core.algorithms.kl import low_variance_kl
from rl_core.algorithms.policy_loss import clipped_policy_loss
from rl_core.config.run import RunConfig
from rl_core.models.output_head import PolicyOutput
from rl_core.models.packing import TreeInput, pack_trees
from rl_core.models.pixels import PixelCache
from rl_core.models.policy import PolicyModel
from rl_core.training.agreement import AgreementMeter
from rl_core.training.metrics import TokenMeans
from rl_core.training.microbatches import split_into_microbatches
from rl_core.training.optimizer import PolicyOptimizer
from rl_core.types import TrainGroup, TrainSample


def longest_sequence(config: RunConfig) -> int:
    """Tokens of the longest prompt with the longest response."""
    return config.data.max_prompt_length + config.rollout.max_response_length


class PolicyUpdate:
    """Computes gradients of one policy and moves it."""

    def __init__(
        self, policy: PolicyModel, *, optimizer: PolicyOptimizer, pixels: PixelCache, config: RunConfig
    ) -> None:
        self._policy = policy
        self._optimizer = optimizer
        self._pixels = pixels
        self._config = config

    def run(self, optimizer_batches: Sequence[Sequence[TrainGroup]], *, check_agreement: bool) -> dict[str, float]:
        """One optimizer step a batch; the first is compared with the engine before the weights move.

        Returns:
            Metrics: token means over the optimizer batches, functions of config, data and seed only.

        Raises:
            AgreementError: engine and trainer disagree beyond `rollout.max_log_prob_gap`.
        """
        means, outcomes = TokenMeans(), []
        gaps = AgreementMeter() if check_agreement else None
        for groups in optimizer_batches:
            self.accumulate_gradient(groups, means=means, gaps=gaps)
            if gaps is not None:
                gaps.check(self._config.rollout.max_log_prob_gap)
                means.constants["agreement/log_prob_gap_max"] = gaps.max_gap
                means.constants["agreement/log_prob_gap_mean"] = gaps.mean_gap
                gaps = None
            outcomes.append(self._optimizer.step())
        means.constants |= {
            "actor/grad_norm": float(np.mean([outcome.grad_norm for outcome in outcomes])),
            "actor/lr": outcomes[-1].lr,
            "actor/skipped_optimizer_steps": float(sum(not outcome.applied for outcome in outcomes)),
        }
        return means.result()

    def accumulate_gradient(
        self, groups: Sequence[TrainGroup], *, means: TokenMeans, gaps: AgreementMeter | None
    ) -> None:
        """Add the gradient of the batch's loss, micro-batch by micro-batch, to the policy's parameters."""
        samples = [sample for group in groups for sample in group.samples]
        totals = BatchTotals(tokens=sum(len(s.rollout.response_ids) for s in samples), sequences=len(samples))
        for batch in self._microbatches(groups):
            loss = self._loss(batch, totals=totals, means=means, gaps=gaps)
            loss.backward()  # type: ignore[no-untyped-call]

    def _microbatches(self, groups: Sequence[TrainGroup]) -> list[list[TrainGroup]]:
        budget = self._config.actor.micro_batch_size_per_device_for_update * longest_sequence(self._config)
        return split_into_microbatches(groups, token_budget=budget)

    def _loss(
        self, groups: Sequence[TrainGroup], *, totals: BatchTotals, means: TokenMeans, gaps: AgreementMeter | None
    ) -> torch.Tensor:
        algorithm = self._config.algorithm
        output = self._forward(groups)
        samples = [sample for group in groups for sample in group.samples]
        log_probs = output.log_probs
        device = log_probs.device
        old = _concatenated((s.old_log_probs for s in samples), device)
        lengths = [len(s.rollout.response_ids) for s in samples]
        weights = token_weights(lengths, mode=algorithm.loss_avg_mode, totals=totals).to(device)
        policy_loss = clipped_policy_loss(
            log_probs=log_probs,
            old_log_probs=old,
            advantages=_concatenated((s.advantages for s in samples), device),
            clip_ratio_low=algorithm.clip_ratio_low,
            clip_ratio_high=algorithm.clip_ratio_high,
            clip_ratio_dual=algorithm.clip_ratio_dual,
        )
        loss = (weights * policy_loss.per_token).sum()
        if gaps is not None:
            gaps.add(samples, log_probs.detach().float().cpu().numpy())
        per_token = {
            "actor/pg_loss": policy_loss.per_token,
            "actor/clip_fraction_high": policy_loss.clipped_high,
            "actor/clip_fraction_low": policy_loss.clipped_low,
            "actor/approx_kl": old - log_probs,
        }
        if output.entropy is not None:
            per_token["actor/entropy"] = output.entropy
        if algorithm.kl is not None:
            kl = low_variance_kl(log_probs, _concatenated((_reference(s) for s in samples), device))
            loss = loss + algorithm.kl.coef * (weights * kl).sum()
            per_token["actor/kl_loss"] = kl
        means.add(per_token, weights)
        return loss

    def _forward(self, groups: Sequence[TrainGroup]) -> PolicyOutput:
        trees = [
            TreeInput(prompt=group.prompt, responses=[sample.rollout.response_ids for sample in group.samples])
            for group in groups
        ]
        packed = pack_trees(trees, pixels=self._pixels, model_config=self._policy.config, device=self._policy.device)
        output: PolicyOutput = self._policy(packed, temperature=self._config.rollout.temperature, with_entropy=True)
        return output


def _concatenated(arrays: Iterator[np.ndarray], device: torch.device) -> torch.Tensor:
    return torch.from_numpy(np.concatenate(list(arrays))).to(device)


def _reference(sample: TrainSample) -> np.ndarray:
    if sample.ref_log_probs is None:
        raise ValueError("algorithm.kl is set but a sample has no reference log-probs")
    return sample.ref_log_probs
