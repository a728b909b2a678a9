"""A reward that takes its time."""

import time

from rl_core.rewards.sample import RewardSample


def score(sample: RewardSample) -> float:
    time.sleep(0.1)
    return float(len(sample.response))
