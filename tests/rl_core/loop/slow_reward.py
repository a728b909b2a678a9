"""A reward that takes its time, and tells when."""

import time

from rl_core.rewards.sample import RewardSample


def score(sample: RewardSample) -> dict[str, float]:
    began = time.monotonic()  # one clock for all processes of a machine
    time.sleep(0.1)
    return {"overall": float(len(sample.response)), "began": began, "ended": time.monotonic()}
