import pytest

from rl_core.config.reward import RewardConfig

LENGTH = {"function": "length", "weight": 0.5}


@pytest.mark.parametrize(
    ("reward", "description"),
    [
        ({"function": "math"}, "math"),
        ({"mixture": [{"function": "math"}, LENGTH]}, "math + 0.5 length"),
        ({"by_source": {"clevr": {"function": "count"}}}, "count (clevr)"),
        ({"function": "math", "by_source": {"clevr": {"function": "count"}}}, "count (clevr), math (others)"),
    ],
)
def test_a_reward_describes_itself(reward, description):
    assert RewardConfig.model_validate(reward).description == description


def test_every_function_has_its_key():
    reward = RewardConfig.model_validate(
        {"function": "math", "by_source": {"clevr": {"mixture": [{"function": "count"}, LENGTH]}}}
    )
    assert [(key, term.function) for key, term in reward.keyed_terms()] == [
        ("reward.function", "math"),
        ("reward.by_source.clevr.mixture.0.function", "count"),
        ("reward.by_source.clevr.mixture.1.function", "length"),
    ]
    assert [term.label for _, term in reward.keyed_terms()] == ["math", "count", "length"]
