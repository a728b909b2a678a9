"""Brevity: the full score up to a number of tokens, 0 from a larger number on."""

from rl_core.rewards.sample import RewardSample


def compute_score(sample: RewardSample, target_length: int, max_length: int) -> dict[str, float]:
    """overall = 1 up to `target_length` tokens, then falling linearly to 0 at `max_length`. Made for mixtures: on its
    own it teaches empty responses."""
    if not 0 <= target_length < max_length:
        raise ValueError(f"target_length {target_length} is not between 0 and max_length {max_length}")
    left = (max_length - sample.response_length) / (max_length - target_length)
    return {"overall": min(1.0, max(0.0, left))}


def exemplar(answer: str) -> str:
    """A short response."""
    return answer
