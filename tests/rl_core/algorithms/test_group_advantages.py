import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_core.algorithms.estimators import GRPO

grpo_advantages = GRPO().of_group
REWARDS = st.lists(st.floats(-10, 10, allow_subnormal=False), min_size=2, max_size=16)


@pytest.mark.parametrize("value", [0.1, 0.3, 0.9, 0.0, 1.0])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_equal_rewards_give_exactly_zero(value: float, dtype: type) -> None:
    assert np.all(grpo_advantages(np.full(8, value, dtype=dtype)) == 0.0)


def test_one_reward_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 2"):
        grpo_advantages(np.array([1.0]))


@given(REWARDS)
def test_advantages_sum_to_zero_and_keep_the_order_of_rewards(rewards: list[float]) -> None:
    values = np.array(rewards)
    advantages = grpo_advantages(values)
    assert abs(advantages.sum()) < 1e-6
    order = np.argsort(values, kind="stable")
    assert np.all(np.diff(advantages[order]) >= 0)


@given(REWARDS, st.randoms())
def test_advantages_follow_their_rewards_through_a_permutation(rewards: list[float], random) -> None:
    order = list(range(len(rewards)))
    random.shuffle(order)
    values = np.array(rewards)
    np.testing.assert_allclose(grpo_advantages(values[order]), grpo_advantages(values)[order], atol=1e-9)
