"""Tries a user's loss, estimator or filter on made-up inputs, before anything expensive starts."""

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
    tokens = ResponseTokens(log_probs=log_probs, old_log_probs=old, advantages=advantages, lengths=_LENGTHS)
    try:
        per_token = custom.loss(tokens).per_token
    except ValueError as error:
        return f"tried on {count} made-up tokens: {error}"
    if not per_token.requires_grad:
        return f"{custom.function}: `per_token` has no gradient to `tokens.log_probs`: nothing would be learned"
    per_token.sum().backward()  # type: ignore[no-untyped-call]
    gradient = log_probs.grad
    if gradient is None or not torch.isfinite(gradient).all():
        return f"{custom.function}: the gradient of `tokens.log_probs` is missing or not finite"
    return None


def advantage_problem(custom: CustomAdvantage) -> str | None:
    """What is wrong with an estimator, tried on two groups, one of them with equal rewards."""
    scores = ((1.0, 0.0, 0.5), (1.0, 1.0, 1.0))
    rewards = [[_at_the_end(n, score) for n, score in zip(_LENGTHS, group, strict=True)] for group in scores]
    try:
        custom.advantages(AdvantageInputs(token_rewards=rewards))
    except ValueError as error:
        return f"tried on {len(scores)} made-up groups of {len(_LENGTHS)} rollouts: {error}"
    return None


def filter_problem(custom: CustomFilter, scores: GroupScores) -> str | None:
    """What is wrong with a filter, tried on one group."""
    try:
        custom.keeps(scores)
    except ValueError as error:
        return f"tried on a group with {', '.join(sorted(scores))}: {error}"
    return None


def _at_the_end(length: int, score: float) -> TokenValues:
    return np.append(np.zeros(length - 1), score)
