import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_core.algorithms.token_advantages import discounted_returns, generalized_advantages, whiten

TOKENS = st.lists(st.floats(-3, 3), min_size=1, max_size=8)
SHARES = st.floats(0, 1)


@given(rewards=TOKENS, gamma=SHARES)
def test_a_return_is_the_discounted_sum_of_what_follows(rewards: list[float], gamma: float) -> None:
    expected = [sum(gamma**k * r for k, r in enumerate(rewards[t:])) for t in range(len(rewards))]
    assert discounted_returns(np.array(rewards), gamma=gamma) == pytest.approx(expected)


@given(rewards=TOKENS, gamma=SHARES, lam=SHARES, seed=st.integers(0, 99))
def test_generalized_advantages_follow_the_recursion(rewards: list[float], gamma: float, lam: float, seed: int) -> None:
    values = np.random.default_rng(seed).normal(size=len(rewards))
    following, next_value, expected = 0.0, 0.0, []
    for reward, value in zip(reversed(rewards), reversed(values), strict=True):
        following = reward + gamma * next_value - value + gamma * lam * following
        next_value = value
        expected.append(following)
    result = generalized_advantages(np.array(rewards), values, gamma=gamma, lam=lam)
    assert result == pytest.approx(expected[::-1])


@pytest.mark.parametrize("value", [0.1, 0.3, 0.9])
def test_equal_tokens_become_exactly_zero(value: float) -> None:
    assert not np.concatenate(whiten([np.full(3, value), np.full(5, value)])).any()


def test_whitening_parts_apart_would_differ() -> None:
    """The control: the batch decides the scale, not the part."""
    parts = [np.array([0.0, 1.0]), np.array([5.0, 9.0])]
    assert np.abs(whiten(parts)[0] - whiten(parts[:1])[0]).max() > 0.1
