"""A reward whose service goes away: it raises while a file is there."""

from pathlib import Path

from rl_core.rewards.sample import RewardSample


def score(sample: RewardSample, broken: str) -> dict[str, float]:
    """0 or 1 by the length of the response; raises ConnectionError while the file `broken` exists."""
    if Path(broken).exists():
        raise ConnectionError("the judge does not answer")
    right = float(len(sample.response) % 2)
    return {"overall": right, "accuracy": right}
