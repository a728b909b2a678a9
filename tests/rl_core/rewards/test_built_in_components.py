"""What planning says of the built-in rewards is what they return."""

from rl_core.config.reward import COMPONENTS, RewardConfig
from rl_core.rewards.pool import RewardPool
from rl_core.rewards.registry import BUILTIN
from tests.rl_core.rewards.samples import make_sample

LIMIT = {"max_response_length": 64, "overlong_buffer_length": 8}
NEEDED = {
    "dapo": LIMIT | {"overlong_penalty_factor": 1.0},
    "overlong": LIMIT,
    "length": {"target_length": 4, "max_length": 64},
}


def term(name: str) -> dict:
    return {"function": name, "kwargs": NEEDED.get(name, {})}


def test_every_built_in_reward_is_known() -> None:
    assert COMPONENTS.keys() == BUILTIN.keys()


def test_each_returns_the_components_that_planning_knows() -> None:
    by_source = {name: term(name) for name in BUILTIN}
    by_source["mixed"] = {"mixture": [term("length"), term("count"), {**term("format"), "name": "form"}]}
    config = RewardConfig.model_validate({"by_source": by_source, "workers": 1})
    samples = [
        make_sample(r"<think>x</think> Answer: \boxed{3}", "B" if name == "choice" else "3", source=name)
        for name in by_source
    ]
    with RewardPool(config) as pool:
        scores = pool.score_all(samples)
    for name, score in zip(by_source, scores, strict=True):
        assert score.error is None, (name, score.error)
        known = config.by_source[name].components
        assert known is not None and set(known) == set(score.components), name


def test_nothing_is_known_of_a_function_of_a_persons_own() -> None:
    config = RewardConfig.model_validate({"mixture": [term("count"), term("own.py:score")]})
    assert config.components is None
