"""Token-level advantages: discounted returns, GAE, and whitening over a rollout batch."""

from collections.abc import Sequence
from itertools import accumulate

import numpy as np
import numpy.typing as npt

TokenValues = npt.NDArray[np.float64]

VARIANCE_FLOOR = 1e-8
"""Added to the variance before its square root, as in the published REINFORCE++ and PPO implementations."""


def discounted_returns(rewards: TokenValues, *, gamma: float) -> TokenValues:
    """[R] -> [R] the return of each token: G_t = r_t + gamma G_{t+1}, and 0 after the last token."""
    backwards = accumulate(rewards[::-1].tolist(), lambda following, reward: reward + gamma * following)
    return np.fromiter(backwards, dtype=np.float64, count=rewards.size)[::-1]


def generalized_advantages(rewards: TokenValues, values: TokenValues, *, gamma: float, lam: float) -> TokenValues:
    """GAE (arXiv 1506.02438, eq. 16): the discounted sum of delta_t = r_t + gamma V_{t+1} - V_t with decay gamma lam,
    not whitened, from rewards and the critic's values before each token, [R] each.

    The value after the last token is 0, because the response has ended. The critic's targets are the result + `values`.
    A `lam` of 0 relies on the critic, 1 on the returns.
    """
    deltas = rewards + gamma * np.append(values[1:], 0.0) - values
    return discounted_returns(deltas, gamma=gamma * lam)


def whiten(parts: Sequence[TokenValues]) -> list[TokenValues]:
    """Shift and scale the values to mean 0 and variance 1 over the tokens of all parts together, [R] of each response
    of a whole rollout batch. The unbiased variance is used. If all values are equal, they become exactly 0."""
    tokens = np.concatenate(parts)
    if np.all(tokens == tokens[0]):
        return [np.zeros_like(part) for part in parts]
    scale = 1.0 / np.sqrt(tokens.var(ddof=1) + VARIANCE_FLOOR)
    mean = tokens.mean()
    return [(part - mean) * scale for part in parts]
