import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rl_core.algorithms.filters.bounds import is_informative


@pytest.mark.parametrize(
    ("values", "informative"),
    [([1, 1, 1, 1], False), ([0, 0, 0, 0], False), ([1, 0, 0, 0], True), ([1, 1, 1, 0], True)],
)
def test_a_prompt_that_is_always_or_never_solved_is_left_out(values, informative):
    assert is_informative(np.array(values, dtype=float), statistic="mean", low=0.0, high=1.0) == informative
    assert is_informative(np.array(values, dtype=float), statistic="spread", low=0.0, high=None) == informative


def test_the_mean_of_a_mixed_reward_keeps_what_the_spread_leaves_out():
    """Why the component matters: all wrong but well formed has a mean of 0.1 and teaches nothing."""
    formed = np.full(8, 0.1)
    assert is_informative(formed, statistic="mean", low=0.01, high=0.99)
    assert not is_informative(formed, statistic="spread", low=0.0, high=None)


@given(value=st.floats(-10, 10), size=st.integers(1, 16))
def test_equal_values_have_no_spread_at_all(value, size):
    assert not is_informative(np.full(size, value), statistic="spread", low=0.0, high=None)


@given(value=st.floats(-10, 10), size=st.integers(1, 16))
@example(value=0.1, size=12)  # their mean is 0.10000000000000002
def test_equal_values_lie_on_a_bound_that_is_their_value(value, size):
    equal = np.full(size, value)
    assert not is_informative(equal, statistic="mean", low=value, high=None)
    assert not is_informative(equal, statistic="mean", low=value - 1.0, high=value)


def test_the_bounds_are_strict():
    half = np.array([0.0, 1.0])
    assert not is_informative(half, statistic="mean", low=0.5, high=1.0)
    assert not is_informative(half, statistic="mean", low=0.0, high=0.5)
    assert is_informative(half, statistic="mean", low=0.49, high=0.51)
