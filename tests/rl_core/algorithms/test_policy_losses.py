"""Laws of every policy loss, under every aggregation."""

import math
from collections.abc import Sequence
from typing import get_args

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rl_core.algorithms.aggregation import BatchTotals, LossAverage, token_weights
from rl_core.algorithms.kl import KL_ESTIMATORS
from rl_core.algorithms.losses import CISPOLoss, PPOLoss
from rl_core.algorithms.policy_loss import ResponseTokens
from rl_core.config.algorithm import KLPenalty
from tests.rl_core.built_in import LOSSES

LENGTHS = st.lists(st.integers(1, 6), min_size=1, max_size=8)
every_loss = pytest.mark.parametrize("name", LOSSES)
every_mode = pytest.mark.parametrize("mode", get_args(LossAverage))


def make_tokens(lengths: Sequence[int], seed: int) -> list[ResponseTokens]:
    """One response each, float64, with ratios on both sides of the bounds."""
    generator = torch.Generator().manual_seed(seed)

    def draw(length: int) -> torch.Tensor:
        return torch.randn(length, generator=generator, dtype=torch.float64)

    return [
        ResponseTokens(log_probs=draw(n) - 1.0, old_log_probs=draw(n) - 1.0, advantages=draw(n), lengths=[n])
        for n in lengths
    ]


def gradients(
    name: str, mode: LossAverage, responses: Sequence[ResponseTokens], parts: Sequence[Sequence[int]]
) -> list[torch.Tensor]:
    """The gradient at each response's log-probs, with the batch cut into micro-batches `parts`."""
    leaves = [response.log_probs.clone().requires_grad_() for response in responses]
    lengths = [len(leaf) for leaf in leaves]
    totals = BatchTotals(tokens=sum(lengths), sequences=len(lengths), longest_response=6)
    for part in parts:
        tokens = ResponseTokens(
            log_probs=torch.cat([leaves[i] for i in part]),
            old_log_probs=torch.cat([responses[i].old_log_probs for i in part]),
            advantages=torch.cat([responses[i].advantages for i in part]),
            lengths=[lengths[i] for i in part],
        )
        weights = token_weights(tokens.lengths, mode=mode, totals=totals)
        (weights * LOSSES[name]().loss(tokens).per_token).sum().backward()
    return [leaf.grad for leaf in leaves]


@every_mode
@every_loss
@settings(deadline=None, max_examples=30)
@given(lengths=LENGTHS, cut=st.integers(1, 4), seed=st.integers(0, 999), random=st.randoms(use_true_random=False))
def test_the_gradient_does_not_depend_on_micro_batches_or_order(name, mode, lengths, cut, seed, random):
    responses = make_tokens(lengths, seed)
    order = list(range(len(lengths)))
    whole = gradients(name, mode, responses, [order])
    random.shuffle(order)
    parts = [order[i : i + cut] for i in range(0, len(order), cut)]
    for expected, found in zip(whole, gradients(name, mode, responses, parts), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-9)


@every_loss
def test_at_the_old_policy_every_loss_has_the_policy_gradient(name):
    """Where the ratio is 1 nothing is clipped, and the gradient is -A, GSPO's spread over its response."""
    (tokens,) = make_tokens([5], seed=1)
    constant = torch.full((5,), 0.7, dtype=torch.float64)
    log_probs = tokens.log_probs.clone().requires_grad_()
    at_old = ResponseTokens(log_probs=log_probs, old_log_probs=tokens.log_probs, advantages=constant, lengths=[5])
    LOSSES[name]().loss(at_old).per_token.sum().backward()
    torch.testing.assert_close(log_probs.grad, -constant)


@pytest.mark.parametrize(
    ("name", "keeps"), [("ppo", False), ("gspo", False), ("gspo_token", False), ("cispo", True), ("sapo", True)]
)
def test_which_losses_keep_a_gradient_above_the_bound(name, keeps):
    log_probs = torch.tensor([-0.1], dtype=torch.float64, requires_grad=True)
    tokens = ResponseTokens(
        log_probs=log_probs, old_log_probs=log_probs.detach() - 0.6, advantages=torch.ones(1).double(), lengths=[1]
    )
    LOSSES[name]().loss(tokens).per_token.sum().backward()
    assert (log_probs.grad.abs().item() > 0.0) == keeps


@every_loss
def test_a_wild_token_does_not_overflow(name):
    log_probs = torch.tensor([0.0, -900.0], requires_grad=True)
    old = torch.tensor([-900.0, 0.0])
    for sign in (1.0, -1.0):
        tokens = ResponseTokens(log_probs=log_probs, old_log_probs=old, advantages=sign * torch.ones(2), lengths=[1, 1])
        loss = LOSSES[name]().loss(tokens).per_token
        loss.sum().backward()
        assert torch.isfinite(loss).all() and torch.isfinite(log_probs.grad).all()


def test_a_lower_ratio_of_one_bounds_from_above_only():
    """CISPO as its paper has it."""
    log_probs = torch.tensor([-9.0, 0.0], requires_grad=True)
    old = torch.tensor([0.0, -9.0])
    tokens = ResponseTokens(log_probs=log_probs, old_log_probs=old, advantages=torch.ones(2), lengths=[2])
    CISPOLoss(clip_ratio_low=1.0, clip_ratio_high=4.0).loss(tokens).per_token.sum().backward()
    torch.testing.assert_close(log_probs.grad, -torch.tensor([-9.0, 5.0]).where(old < 0, torch.tensor(-9.0).exp()))


def test_the_configuration_knows_the_same_kl_estimators():
    assert {*KL_ESTIMATORS, "full"} == set(get_args(KLPenalty)), "`full` needs distributions: it is the output head's"


def test_without_a_dual_bound_the_loss_of_a_negative_advantage_has_no_limit():
    tokens = ResponseTokens(
        log_probs=torch.tensor([4.0, 4.0, 4.0], dtype=torch.float64, requires_grad=True),
        old_log_probs=torch.zeros(3, dtype=torch.float64),
        advantages=torch.tensor([-1.0, 0.0, 1.0], dtype=torch.float64),
        lengths=[3],
    )
    bounded, free = PPOLoss().loss(tokens), PPOLoss(clip_ratio_dual=None).loss(tokens)
    assert bounded.per_token.tolist() == pytest.approx([3.0, 0.0, -1.3])
    assert free.per_token.tolist() == pytest.approx([math.exp(4.0), 0.0, -1.3])
    assert bounded.logged["clip_fraction_dual"].tolist() == [True, False, False]
    assert free.logged["clip_fraction_dual"].tolist() == [False, False, False]
    (gradient,) = torch.autograd.grad(free.per_token.sum(), tokens.log_probs)
    assert gradient.tolist() == pytest.approx([math.exp(4.0), 0.0, 0.0])
