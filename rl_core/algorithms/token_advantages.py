"""Advantages token by token: discounted returns, GAE, and whitening over a rollout batch."""

from collections.abc import Sequence
from itertools import accumulate

import numpy as np
import numpy.typing as npt

TokenValues = npt.NDArray[np.float64]

VARIANCE_FLOOR = 1e-8
"""Added to the variance before its root, as in the published REINFORCE++ and PPO implementations."""


def discounted_returns(rewards: TokenValues, *, gamma: float) -> TokenValues:
    """What follows each token: G_t = r_t + gamma G_{t+1}, zero after the last.

    Args:
        rewards: [R] float64, one response's rewards; the score sits on the last token.
        gamma: Discount a token, in [0, 1].

    Returns:
        [R] float64.
    """
    backwards = accumulate(rewards[::-1].tolist(), lambda following, reward: reward + gamma * following)
    return np.fromiter(backwards, dtype=np.float64, count=rewards.size)[::-1]


def generalized_advantages(rewards: TokenValues, values: TokenValues, *, gamma: float, lam: float) -> TokenValues:
    """GAE (arXiv 1506.02438, eq. 16): the discounted sum of delta_t = r_t + gamma V_{t+1} - V_t with decay gamma lam.

    The value after the last token is zero: the response has ended. The critic's targets are the result + `values`.

    Args:
        rewards: [R] float64.
        values: [R] float64, the critic's value before each token.
        gamma: Discount a token.
        lam: 0 trusts the critic, 1 the returns.

    Returns:
        [R] float64, not whitened.
    """
    deltas = rewards + gamma * np.append(values[1:], 0.0) - values
    return discounted_returns(deltas, gamma=gamma * lam)


def whiten(parts: Sequence[TokenValues]) -> list[TokenValues]:
    """Shift and scale to mean 0 and variance 1 over the tokens of all parts together.

    The variance is the unbiased one. Tokens that are all equal become exactly zero. One part alone is not a sample of
    the batch: hand over the whole rollout batch, never a micro-batch.

    Args:
        parts: [R] float64 each, the responses of a rollout batch.
    """
    tokens = np.concatenate(parts)
    if np.all(tokens == tokens[0]):
        return [np.zeros_like(part) for part in parts]
    scale = 1.0 / np.sqrt(tokens.var(ddof=1) + VARIANCE_FLOOR)
    mean = tokens.mean()
    return [(part - mean) * scale for part in parts]
