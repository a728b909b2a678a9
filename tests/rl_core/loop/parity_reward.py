"""A reward that tells some prompts' responses apart and others' not."""

from rl_core.rewards.sample import RewardSample


def judge(sample: RewardSample) -> dict[str, float]:
    """0 or 1 by the length of the response where the answer is odd, always 0.5 where it is even."""
    if int(sample.ground_truth) % 2 == 0:
        return {"overall": 0.5, "odd": 0.0}
    return {"overall": float(len(sample.response) % 2), "odd": 1.0}
