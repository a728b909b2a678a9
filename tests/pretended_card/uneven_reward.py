"""A reward that differs between the short random responses of the rehearsal, so that there is something to learn."""

from rl_core.rewards.sample import RewardSample


def score(sample: RewardSample) -> dict[str, float]:
    """The share of letters in the response."""
    share = sum(letter.isalpha() for letter in sample.response) / max(1, len(sample.response))
    return {"overall": share, "accuracy": float(share > 0.5)}
