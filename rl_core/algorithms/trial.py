"""Tries a user's loss, estimator or filter on made-up inputs, before anything expensive starts."""

from collections.abc import Sequence

import numpy as np
import torch

from rl_core.algorithms.advantages import AdvantageInputs
from rl_core.algorithms.estimators import CustomAdvantage
from rl_core.algorithms.filters import CustomFilter
from rl_core.algorithms.group_filter import GroupScores
from rl_core.algorithms.losses import CustomLoss
from rl_core.algorithms.policy_loss import ResponseTokens
from rl_core.algorithms.token_advantages import TokenValues

_LENGTHS = (3, 1, 2)
"""Lengths of the responses of a group; one has a single token."""


def loss_problem(custom: CustomLoss) -> str | None:
    """Why nothing could be learned with a loss, tried on made-up tokens."""
    generator = torch.Generator().manual_seed(0)
    count = sum(_LENGTHS)
    old, advantages = torch.randn(count, generator=generator) - 1.0, torch.randn(count, generator=generator)
    log_probs = (old + 0.1 * torch.randn(count, generator=generator)).requires_grad_()
    try:
        per_token = custom.loss(_tokens(log_probs, old, advantages)).per_token
    except ValueError as error:
        return f"tried on {count} made-up tokens: {error}"
    if not per_token.requires_grad:
        return f"{custom.function}: `per_token` has no gradient to `tokens.log_probs`: nothing would be learned"
    per_token.sum().backward()  # type: ignore[no-untyped-call]
    gradient = log_probs.grad
    if gradient is None or not torch.isfinite(gradient).all():
        return f"{custom.function}: the gradient of `tokens.log_probs` is missing or not finite"
    return None


def loss_doubts(custom: CustomLoss) -> list[str]:
    """What is unusual about a loss without problems, and may be meant so: where the policy still is the one that
    sampled, a step down the loss does not make good tokens likelier and bad ones less likely; or a response's loss
    depends on another response."""
    old = torch.full((sum(_LENGTHS),), -1.0)
    log_probs = old.clone().requires_grad_()
    doubts = []
    for sign, wanted in ((1.0, "likelier"), (-1.0, "less likely")):
        tokens = _tokens(log_probs, old, torch.full_like(old, sign))
        (gradient,) = torch.autograd.grad(custom.loss(tokens).per_token.sum(), log_probs)
        if not (sign * gradient < 0).all():
            doubts.append(f"does not make tokens with advantage {sign:g} {wanted}")
    per_token = custom.loss(_tokens(log_probs, old, torch.linspace(-1.0, 1.0, len(old)))).per_token
    first = _LENGTHS[0]
    (gradient,) = torch.autograd.grad(per_token[:first].sum(), log_probs)
    if gradient[first:].any():
        doubts.append("lets a response's loss depend on the log-probs of other responses of its micro-batch")
    return [f"{custom.function} {doubt}" for doubt in doubts]


def _tokens(log_probs: torch.Tensor, old: torch.Tensor, advantages: torch.Tensor) -> ResponseTokens:
    return ResponseTokens(log_probs=log_probs, old_log_probs=old, advantages=advantages, lengths=_LENGTHS)


def advantage_problem(custom: CustomAdvantage) -> str | None:
    """What is wrong with an estimator, tried on two groups, one of them with equal rewards."""
    scores = ((1.0, 0.0, 0.5), (1.0, 1.0, 1.0))
    rewards = [[_at_the_end(n, score) for n, score in zip(_LENGTHS, group, strict=True)] for group in scores]
    try:
        custom.advantages(AdvantageInputs(token_rewards=rewards))
    except ValueError as error:
        return f"tried on {len(scores)} made-up groups of {len(_LENGTHS)} rollouts: {error}"
    return None


def advantage_doubts(custom: CustomAdvantage) -> list[str]:
    """What is unusual about an estimator without problems, and may be meant so: equal rewards have an advantage, or the
    order of the responses matters."""

    def advantages(scores: Sequence[float]) -> list[float]:
        group = [_at_the_end(2, score) for score in scores]
        return [float(part.sum()) for part in custom.advantages(AdvantageInputs(token_rewards=[group]))[0]]

    doubts = []
    if not np.allclose(advantages((1.0, 1.0, 1.0)), 0.0, atol=1e-6):
        doubts.append("gives responses with equal rewards an advantage that is not 0, so that chance is learned")
    scores = (1.0, 0.0, 0.5)
    if not np.allclose(advantages(scores)[::-1], advantages(scores[::-1])):
        doubts.append("gives a response another advantage when the order of the responses is another one")
    return [f"{custom.function} {doubt}" for doubt in doubts]


def filter_problem(custom: CustomFilter, scores: GroupScores) -> str | None:
    """What is wrong with a filter, tried on one group."""
    try:
        custom.keeps(scores)
    except ValueError as error:
        return f"tried on a group with {', '.join(sorted(scores))}: {error}"
    return None


def _at_the_end(length: int, score: float) -> TokenValues:
    return np.append(np.zeros(length - 1), score)
