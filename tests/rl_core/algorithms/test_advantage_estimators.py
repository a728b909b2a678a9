import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_core.algorithms.advantages import AdvantageInputs, Grouped
from rl_core.algorithms.estimators import GAE
from rl_core.algorithms.token_advantages import discounted_returns
from tests.rl_core.built_in import ESTIMATORS

GROUPS = st.lists(
    st.lists(st.tuples(st.integers(1, 5), st.floats(-2, 2, allow_subnormal=False)), min_size=2, max_size=5),
    min_size=1,
    max_size=4,
)
"""[group][rollout] -> (length, score)."""


GROUP_BASELINES = sorted(name for name, section in ESTIMATORS.items() if section().smallest_group > 1)


def estimate(name: str, groups: list[list[tuple[int, float]]], **options: float) -> Grouped:
    rewards = [[np.append(np.zeros(length - 1), score) for length, score in group] for group in groups]
    values = [[np.full(len(part), 0.25) for part in group] for group in rewards]
    inputs = AdvantageInputs(token_rewards=rewards, greedy_rewards=[0.5] * len(rewards), values=values)
    return ESTIMATORS[name](**options).advantages(inputs)


def valued(lengths: list[int], *, seed: int) -> AdvantageInputs:
    """One group with rewards and values drawn for every token."""
    generator = np.random.default_rng(seed)
    rewards, values = ([generator.normal(size=length) for length in lengths] for _ in range(2))
    return AdvantageInputs(token_rewards=[rewards], values=[values])


@pytest.mark.parametrize("name", ESTIMATORS)
@given(groups=GROUPS)
def test_every_token_has_a_finite_advantage(name, groups):
    result = estimate(name, groups)
    assert [[len(part) for part in group] for group in result] == [[length for length, _ in group] for group in groups]
    assert all(np.isfinite(part).all() for group in result for part in group)


@pytest.mark.parametrize("name", [name for name in GROUP_BASELINES if name != "reinforce_plus_plus_baseline"])
@given(groups=GROUPS)
def test_a_group_baseline_looks_at_its_own_group_alone(name, groups):
    together = estimate(name, groups)
    for group, expected in zip(groups, together, strict=True):
        (alone,) = estimate(name, [group])
        assert all(np.array_equal(a, b) for a, b in zip(alone, expected, strict=True))


@pytest.mark.parametrize("name", GROUP_BASELINES)
@pytest.mark.parametrize("score", [0.1, 0.3, 0.9])
def test_equal_rewards_give_exactly_zero(name, score):
    single = float(np.float32(score))
    (group,) = estimate(name, [[(3, single)] * 8])
    assert all((part == 0.0).all() for part in group)


@pytest.mark.parametrize("name", GROUP_BASELINES)
def test_a_group_of_one_is_refused(name):
    with pytest.raises(ValueError, match=r"raise rollout\.n"):
        estimate(name, [[(3, 1.0)]])


@given(lengths=st.lists(st.integers(1, 6), min_size=1, max_size=4), gamma=st.floats(0, 1), seed=st.integers(0, 99))
def test_the_targets_of_a_critic_are_the_returns_unless_it_is_trusted_and_then_look_one_token_ahead(
    lengths, gamma, seed
):
    inputs = valued(lengths, seed=seed)
    (returns,), (ahead,) = (GAE(gamma=gamma, lam=lam).value_targets(inputs) for lam in (1.0, 0.0))
    for far, near, rewards, values in zip(returns, ahead, inputs.token_rewards[0], inputs.values[0], strict=True):
        assert far == pytest.approx(discounted_returns(rewards, gamma=gamma), abs=1e-9)
        assert near == pytest.approx(rewards + gamma * np.append(values[1:], 0.0), abs=1e-9)


def test_a_perfect_critic_leaves_no_advantage():
    inputs = AdvantageInputs(token_rewards=[[np.array([0.0, 1.0])]], values=[[np.ones(2)]])
    assert not GAE(lam=0.9).advantages(inputs)[0][0].any()


def test_reinforce_plus_plus_compares_across_prompts():
    """One response a prompt is enough, and a prompt that is always right is pushed towards its answers."""
    ((right,), (wrong,)) = estimate("reinforce_plus_plus", [[(1, 1.0)], [(1, 0.0)]])
    assert right > 0.0 > wrong


def test_a_discount_credits_the_last_token_most():
    ((right,), _) = estimate("reinforce_plus_plus", [[(4, 1.0)], [(4, 0.0)]], gamma=0.5)
    assert np.all(np.diff(right) > 0.0)


@given(groups=GROUPS)
def test_reinforce_plus_plus_with_baseline_is_white_over_the_batch(groups):
    tokens = np.concatenate([part for group in estimate("reinforce_plus_plus_baseline", groups) for part in group])
    assert abs(tokens.mean()) < 1e-6
    assert not tokens.any() or tokens.var(ddof=1) < 1.0 + 1e-6
