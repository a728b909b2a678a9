"""What a reward returns and cannot be, before any of it is called."""

import pytest

from rl_core.config.run import RunConfig
from rl_core.planning.rules import value_problems
from tests.rl_core.planning.published import Configure


def problems_of(configure: Configure, *overrides: str, **reward) -> list[tuple[str, str, bool]]:
    changed = RunConfig.model_validate(configure(*overrides).model_dump() | {"reward": reward})
    return [(problem.where, problem.what, problem.fatal) for problem in value_problems(changed)]


READS_OVERALL = "evaluation.accuracy_key=overall"


@pytest.mark.parametrize(
    "reward",
    [
        {"function": "count"},
        {"function": "r1v", "grader": "math_verify"},
        {"mixture": [{"function": "math"}, {"function": "length", "weight": 0.1}]},
        {"by_source": {"a": {"function": "count"}}},
    ],
)
def test_a_reward_that_fits_has_no_problem(configure, reward):
    assert problems_of(configure, **reward) == []


@pytest.mark.parametrize(
    ("reward", "where", "named"),
    [
        ({}, "reward.function", "no function is named"),
        ({"function": "count", "by_source": {"a": {}}}, "reward.by_source.a.function", "no function is named"),
        ({"function": "count", "mixture": [{"function": "math"}]}, "reward.mixture", "both given"),
        ({"mixture": [{"function": "math"}], "kwargs": {"a": 1}}, "reward.kwargs", "no function for kwargs"),
        ({"mixture": [{"function": "a.py:f"}, {"function": "b.py:f"}]}, "reward.mixture", "2 of its functions"),
        ({"mixture": [{"function": "math", "weight": 0.0}]}, "reward.mixture", "every weight is 0"),
        ({"function": "count", "grader": "mathruler"}, "reward.grader", "no configured reward uses"),
    ],
)
def test_settings_that_do_not_fit_the_reward_are_named(configure, reward, where, named):
    ((place, what, fatal),) = problems_of(configure, **reward)
    assert (place, fatal) == (where, True)
    assert named in what


def test_an_overlong_penalty_for_another_limit_is_a_warning(configure):
    kwargs = {"max_response_length": configure().rollout.max_response_length}
    assert problems_of(configure, READS_OVERALL, function="overlong", kwargs=kwargs) == []
    ((where, what, fatal),) = problems_of(
        configure, READS_OVERALL, function="overlong", kwargs={"max_response_length": 3}
    )
    assert (where, fatal) == ("reward.function", False)
    assert what.startswith("its max_response_length is 3, and responses end at")


@pytest.mark.parametrize(
    ("reward", "where", "words"),
    [
        ({"function": "cuont"}, "reward.function", "did you mean `count`?"),
        ({"mixture": [{"function": "count"}, {"function": "xyz"}]}, "reward.mixture.1.function", "there is choice, "),
        (
            {"function": "count", "by_source": {"a": {"function": "mth"}}},
            "reward.by_source.a.function",
            "did you mean `math`?",
        ),
    ],
)
def test_a_built_in_reward_that_there_is_not_is_named(configure, reward, where, words):
    (found,) = problems_of(configure, **reward)
    assert found[0] == where and words in found[1] and found[2]


@pytest.mark.parametrize(
    ("component", "reward", "is_known"),
    [
        ("accuracy", {"function": "count"}, True),
        ("acuracy", {"function": "count"}, False),
        ("anything", {"function": "own.py:score"}, True),
        ("accuracy", {"mixture": [{"function": "length"}, {"function": "count"}]}, False),
        ("right/accuracy", {"mixture": [{"function": "length"}, {"function": "count", "name": "right"}]}, True),
        ("anything", {"mixture": [{"function": "count"}, {"function": "own.py:score"}]}, True),
        ("accuracy", {"by_source": {"a": {"function": "count"}, "b": {"function": "format"}}}, False),
    ],
)
def test_a_component_that_no_reward_returns_is_a_problem_of_the_key_that_reads_it(
    configure, component, reward, *, is_known
):
    keys = {found[0] for found in problems_of(configure, f"evaluation.accuracy_key={component}", **reward)}
    assert keys == (set() if is_known else {"evaluation.accuracy_key"})
    filtering = f"algorithm.online_filtering={{filter_key: {component}}}"
    keys = {found[0] for found in problems_of(configure, filtering, **reward)} - {"evaluation.accuracy_key"}
    assert keys == (set() if is_known else {"algorithm.online_filtering.filter_key"})
    stopping = f"trainer.stop_at={{metric: reward/{component}, value: 1}}"
    keys = {found[0] for found in problems_of(configure, stopping, **reward)} - {"evaluation.accuracy_key"}
    assert keys == (set() if is_known else {"trainer.stop_at.metric"})
