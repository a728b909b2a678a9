"""Rules between the values of the reward's section."""

from collections.abc import Callable

import pytest

from rl_core.config.run import RunConfig
from rl_core.planning.reward_rules import reward_problems

Configure = Callable[..., RunConfig]


def told(configure: Configure, **reward) -> list[tuple[str, str, bool]]:
    changed = RunConfig.model_validate(configure().model_dump() | {"reward": reward})
    return [(problem.where, problem.what, problem.fatal) for problem in reward_problems(changed)]


@pytest.mark.parametrize(
    "reward",
    [
        {"function": "count"},
        {"function": "r1v", "grader": "math_verify"},
        {"mixture": [{"function": "math"}, {"function": "length", "weight": 0.1}]},
        {"by_source": {"a": {"function": "count"}}},
        {"mixture": [{"function": "length"}, {"function": "length", "name": "long"}]},
    ],
)
def test_a_reward_that_fits_has_no_problem(configure: Configure, reward: dict) -> None:
    assert told(configure, **reward) == []


@pytest.mark.parametrize(
    ("reward", "where", "named"),
    [
        ({}, "reward.function", "no function is named"),
        ({"function": "count", "by_source": {"a": {}}}, "reward.by_source.a.function", "no function is named"),
        ({"function": "count", "mixture": [{"function": "math"}]}, "reward.mixture", "both given"),
        ({"mixture": [{"function": "math"}], "kwargs": {"a": 1}}, "reward.kwargs", "no function for kwargs"),
        ({"mixture": [{"function": "a.py:f"}, {"function": "b.py:f"}]}, "reward.mixture", "2 of its functions"),
        ({"mixture": [{"function": "math", "weight": 0.0}]}, "reward.mixture", "every weight is 0"),
        ({"function": "count", "grader": "mathruler"}, "reward.grader", "used by none"),
    ],
)
def test_what_does_not_fit_is_named(configure: Configure, reward: dict, where: str, named: str) -> None:
    ((place, what, fatal),) = told(configure, **reward)
    assert (place, fatal) == (where, True)
    assert named in what


def test_an_overlong_penalty_for_another_limit_is_a_warning(configure: Configure) -> None:
    kwargs = {"max_response_length": configure().rollout.max_response_length}
    assert told(configure, function="overlong", kwargs=kwargs) == []
    ((where, what, fatal),) = told(configure, function="overlong", kwargs={"max_response_length": 3})
    assert (where, fatal) == ("reward.function", False)
    assert what.startswith("its max_response_length is 3, and responses end at")
