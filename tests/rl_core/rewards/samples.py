"""Reward samples for tests."""

from rl_core.rewards.sample import RewardSample


def make_sample(response: str, ground_truth: str = "3", *, length: int = 5) -> RewardSample:
    return RewardSample(
        response=response,
        ground_truth=ground_truth,
        response_length=length,
        prompt="<|im_start|>user\nHow many?",
        question="How many?",
        data_source="test",
    )
