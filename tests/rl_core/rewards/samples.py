"""Reward samples for tests."""

import re

from rl_core.rewards.sample import RewardSample

PLACE = re.compile(r" \(\S+\.py line \d+\)$")
"""What the reason of a failure ends with that came from a line of a user's file."""


def without_place(reason: str | None) -> str | None:
    return None if reason is None else PLACE.sub("", reason)


def make_sample(
    response: str, ground_truth: str = "3", *, length: int = 5, source: str = "test", uid: str = "p0", index: int = 0
) -> RewardSample:
    return RewardSample(
        response=response,
        ground_truth=ground_truth,
        response_length=length,
        prompt="<|im_start|>user\nHow many?",
        question="How many?",
        data_source=source,
        prompt_uid=uid,
        sample_index=index,
    )
