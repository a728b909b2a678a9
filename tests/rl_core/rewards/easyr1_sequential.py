"""A reward file as EasyR1's documentation describes the sequential type, with a few ways to go wrong."""

from typing import Any

from tests.rl_core.rewards.easyr1_batch import one_score

REWARD_NAME = "tests"
REWARD_TYPE = "sequential"


def compute_score(reward_input: dict[str, Any], format_weight: float = 0.5) -> dict[str, float]:
    if not isinstance(reward_input, dict):
        raise ValueError("wants a dict")
    return one_score(reward_input, format_weight)
