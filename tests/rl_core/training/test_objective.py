"""The loss of a micro-batch, from log-probs made up."""

from collections.abc import Sequence
from dataclasses import replace
from typing import get_args

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rl_core.algorithms.aggregation import LossAverage
from rl_core.algorithms.correction import importance_ratios, masked_weights, truncated_weights
from rl_core.algorithms.losses import PPOLoss
from rl_core.algorithms.policy_loss import PolicyLoss, ResponseTokens
from rl_core.config.algorithm import AlgorithmConfig, KLConfig
from rl_core.loop.step_metrics import _optimizer_metrics
from rl_core.models.output_head import PolicyOutput
from rl_core.training.batches import OptimizerBatch, OptimizerStepReport
from rl_core.training.objective import _OWN_VALUES, MicroBatchLoss, PolicyObjective, sums_by_group
from rl_core.training.optimizer import StepOutcome
from rl_core.types import TrainGroup, TrainSample
from tests.rl_core.builders import make_train_group

LONGEST = 9


def made_up(sample: TrainSample, seed: int) -> TrainSample:
    generator = np.random.default_rng([seed, sample.rollout.sample_index])
    old, ref, advantages = generator.normal(size=(3, len(sample.rollout.response_ids))).astype(np.float32)
    return replace(sample, old_log_probs=old - 2.0, ref_log_probs=ref - 2.0, advantages=advantages)


def loss_of(group: TrainGroup, values: Sequence[torch.Tensor], config: AlgorithmConfig) -> MicroBatchLoss:
    """The loss of a batch of one group, whose samples have the log-probs and entropies `values`."""
    tokens = torch.cat(list(values))
    totals = OptimizerBatch.of([group], longest_response=LONGEST).totals
    output = PolicyOutput(log_probs=tokens, entropy=tokens.square(), full_kl=None)
    return PolicyObjective(config, kl_coef=0.1).loss(output, group.samples, totals=totals)


class LoggingLoss(PPOLoss):
    """A loss that logs values under names that are drawn."""

    names: tuple[str, ...]

    def loss(self, tokens: ResponseTokens) -> PolicyLoss:
        logged = {name: torch.full_like(tokens.log_probs, number) for number, name in enumerate(self.names)}
        return replace(super().loss(tokens), logged=logged)


PARTS = st.sampled_from(["a", "loss", *_OWN_VALUES])


@given(st.sets(st.lists(PARTS, min_size=1, max_size=3).map("/".join)))
def test_a_value_that_a_loss_logs_replaces_no_other_metric(names):
    group = make_train_group(lengths=(3, 2))
    group = replace(group, samples=[made_up(sample, 1) for sample in group.samples])
    values = [torch.full((length,), -2.0) for length in (3, 2)]
    config = AlgorithmConfig(entropy_coef=0.01, kl=KLConfig(coef=0.1))
    config = config.model_copy(update={"loss": LoggingLoss(names=tuple(sorted(names)))})
    found = loss_of(group, values, config).per_token
    outcome = StepOutcome(grad_norm=1.0, lr=1e-6, applied=True)
    of_optimizer = _optimizer_metrics("actor", [OptimizerStepReport(tokens=[], outcome=outcome)])
    assert len({*found, *of_optimizer}) == len(_OWN_VALUES) + len(names)
    assert {f"actor/{name}" for name in _OWN_VALUES} <= {*found, *of_optimizer}


@pytest.mark.parametrize("mode", get_args(LossAverage))
@given(
    samples=st.lists(st.tuples(st.integers(1, LONGEST), st.booleans()), min_size=1, max_size=6), seed=st.integers(0, 99)
)
def test_a_sample_that_is_not_in_the_loss_is_as_good_as_absent(mode, samples, seed):
    samples = [(3, True), *samples]
    config = AlgorithmConfig(loss_avg_mode=mode, entropy_coef=0.01, kl=KLConfig(coef=0.1))
    group = make_train_group(lengths=tuple(length for length, _ in samples))
    marked = [
        replace(made_up(sample, seed), in_loss=in_loss)
        for sample, (_, in_loss) in zip(group.samples, samples, strict=True)
    ]
    generator = torch.Generator().manual_seed(seed)
    values = [(torch.randn(length, generator=generator) - 2.0).requires_grad_() for length, _ in samples]
    found = loss_of(replace(group, samples=marked), values, config)
    kept = [place for place, (_, in_loss) in enumerate(samples) if in_loss]
    absent = replace(group, samples=[marked[place] for place in kept])
    expected = loss_of(absent, [values[place] for place in kept], config)
    assert found.total.item() == pytest.approx(expected.total.item(), rel=1e-5, abs=1e-6)
    for place, gradient in enumerate(torch.autograd.grad(found.total, values, retain_graph=True)):
        if place not in kept:
            assert not gradient.any()
    for mine, theirs in zip(
        torch.autograd.grad(found.total, [values[place] for place in kept]),
        torch.autograd.grad(expected.total, [values[place] for place in kept]),
        strict=True,
    ):
        assert torch.equal(mine, theirs)
    sums = [
        sums_by_group([one], loss.per_token, loss.weights)
        for one, loss in ((replace(group, samples=marked), found), (absent, expected))
    ]
    assert sums[0].weights == pytest.approx(sums[1].weights)
    for name, values_of in sums[0].sums.items():
        assert values_of == pytest.approx(sums[1].sums[name], abs=1e-6)


OLDER, NEWER = np.array([0.5, 0.2, 0.1, 0.1, 0.1]), np.array([0.3, 0.25, 0.2, 0.15, 0.1])
"""The probabilities that two policies give to five responses of one token each."""
REWARDS = np.array([0.0, 1.0, 3.0, -2.0, 0.5])
UNCLIPPED = AlgorithmConfig(
    loss=PPOLoss(clip_ratio_low=1.0, clip_ratio_high=4.0, clip_ratio_dual=None), loss_avg_mode="seq_sum_norm"
)


def gradient_from_samples_of_the_older(*, old: np.ndarray, weights: np.ndarray) -> torch.Tensor:
    """The gradient of the newer policy's logits, [5]: the expectation over the older policy's samples, written out. The
    advantage of a response is multiplied by how often it is sampled."""
    group = make_train_group(lengths=(1,) * 5)
    values = [
        replace(
            sample,
            advantages=np.float32([5 * LONGEST * OLDER[i] * REWARDS[i]]),
            old_log_probs=np.log(old[[i]]).astype(np.float32),
            importance_weights=weights[[i]].astype(np.float32),
        )
        for i, sample in enumerate(group.samples)
    ]
    logits = torch.tensor(np.log(NEWER), dtype=torch.float32, requires_grad=True)
    loss = loss_of(replace(group, samples=values), torch.log_softmax(logits, 0).split(1), UNCLIPPED)
    (gradient,) = torch.autograd.grad(-loss.total, logits)
    return gradient


def test_a_batch_of_older_weights_has_a_biased_gradient_unless_a_ratio_knows_them():
    """`rollout.staleness: 1`: the gradient of the newer policy's expected reward, from what the older one sampled."""
    logits = torch.tensor(np.log(NEWER), dtype=torch.float32, requires_grad=True)
    (true,) = torch.autograd.grad(torch.softmax(logits, 0) @ torch.tensor(REWARDS, dtype=torch.float32), logits)
    ratios = importance_ratios(np.log(NEWER / OLDER), "token")
    truncated, masked = truncated_weights(ratios, clip_max=5.0), masked_weights(ratios, clip_min=0.5, clip_max=5.0)
    ones = np.ones(5)

    def bias(*, old, weights):
        found = gradient_from_samples_of_the_older(old=old, weights=weights)
        return float((found - true).norm() / true.norm())

    assert bias(old=OLDER, weights=ones) < 1e-5, "old_log_probs: engine"
    assert bias(old=NEWER, weights=truncated) < 1e-5, "recompute, with a correction"
    assert bias(old=NEWER, weights=masked) < 1e-5
    assert bias(old=NEWER, weights=ones) > 0.3, "recompute without one: the older samples are taken for the newer's"
