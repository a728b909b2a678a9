import numpy as np
import pytest

from rl_core.algorithms.advantages import AdvantageInputs, Grouped
from rl_core.algorithms.estimators import ReinforcePlusPlus, ReMax
from rl_core.config.algorithm import AlgorithmConfig
from rl_core.loop.draws import scored_groups
from rl_core.loop.experience import advantage_inputs, train_groups
from rl_core.types import Score
from tests.rl_core.builders import make_group

GOOD, BAD = Score(components={"overall": 1.0}), Score(components={}, error="timeout")
ZERO = Score(components={"overall": 0.0})
GRPO, REINFORCE = AlgorithmConfig(), AlgorithmConfig(advantage=ReinforcePlusPlus())


def estimate(config: AlgorithmConfig, inputs: AdvantageInputs) -> Grouped:
    return config.advantage.advantages(inputs)


def test_a_rollout_without_a_score_leaves_its_groups_statistics():
    group = make_group(lengths=(2, 2, 2))
    scores = {("p0", 0): GOOD, ("p0", 1): BAD, ("p0", 2): ZERO}
    (kept,) = scored_groups([group], scores, config=GRPO)
    assert [rollout.sample_index for rollout in kept.rollouts] == [0, 2]
    inputs = advantage_inputs([kept], scores, kl_penalties=None, greedy_rewards={}, values=[])
    ((first, second),) = estimate(GRPO, inputs)
    assert first == pytest.approx(np.full(2, np.sqrt(0.5)), abs=1e-5)
    assert second == pytest.approx(-first)


def test_a_group_left_with_one_score_is_dropped_where_it_has_nothing_to_compare_with():
    scores = {("p0", 0): GOOD, ("p0", 1): BAD}
    group = make_group(lengths=(1, 1))
    assert scored_groups([group], scores, config=GRPO) == []
    (kept,) = scored_groups([group], scores, config=REINFORCE)
    assert len(kept.rollouts) == 1


def test_every_token_carries_its_own_numbers():
    group = make_group(lengths=(3, 1))
    log_probs = [[rollout.log_probs for rollout in group.rollouts]]
    advantages = [[np.array([1.0, 2.0, 3.0]), np.array([4.0])]]
    weights = [[np.array([0.5, 1.0, 2.0]), np.array([0.0])]]
    (train,) = train_groups([group], advantages=advantages, old=log_probs, ref=log_probs, importance_weights=weights)
    assert [sample.advantages.tolist() for sample in train.samples] == [[1.0, 2.0, 3.0], [4.0]]
    assert train.samples[0].importance_weights.tolist() == [0.5, 1.0, 2.0]
    assert {sample.advantages.dtype for sample in train.samples} == {np.dtype(np.float32)}
    assert train.samples[1].ref_log_probs is group.rollouts[1].log_probs
    assert train.samples[0].values is None and train.samples[0].returns is None


def test_the_greedy_reward_belongs_to_its_prompt():
    groups = [make_group("p0", lengths=(1,)), make_group("p1", lengths=(2,))]
    scores = {("p0", 0): GOOD, ("p1", 0): GOOD}
    remax = AlgorithmConfig(advantage=ReMax())
    greedy = {"p1": 1.0, "p0": 0.25}
    inputs = advantage_inputs(groups, scores, kl_penalties=None, greedy_rewards=greedy, values=[])
    assert [group[0].tolist() for group in estimate(remax, inputs)] == [[0.75], [0.0, 0.0]]


def test_a_critics_numbers_belong_to_their_tokens():
    group = make_group(lengths=(3, 1))
    scores = {("p0", 0): GOOD, ("p0", 1): ZERO}
    values = [[np.array([0.5, 0.25, 0.75], np.float32), np.array([0.125], np.float32)]]
    penalties = [[np.array([0.0, 0.25, 0.0]), np.zeros(1)]]
    inputs = advantage_inputs([group], scores, kl_penalties=penalties, greedy_rewards={}, values=values)
    assert [part.tolist() for part in inputs.token_rewards[0]] == [[0.0, -0.25, 1.0], [0.0]]
    assert [part.tolist() for part in inputs.values[0]] == [[0.5, 0.25, 0.75], [0.125]]
    assert {part.dtype for part in inputs.values[0]} == {np.dtype(np.float64)}
