"""DAPO's soft penalty for responses that near the token limit (Yu et al. 2025, arXiv 2503.14476, equation 13)."""

from rl_core.rewards.sample import RewardSample


def compute_score(sample: RewardSample, max_response_length: int, overlong_buffer_length: int) -> dict[str, float]:
    """overall = 0 up to `max_response_length - overlong_buffer_length` tokens, then falling linearly to -1 at
    `max_response_length`. Lengths in tokens, the end-of-sequence token included. Made for mixtures."""
    return {"overall": soft_overlong_penalty(sample.response_length, max_response_length, overlong_buffer_length)}


def soft_overlong_penalty(length: int, max_response_length: int, overlong_buffer_length: int) -> float:
    """The penalty of a response of `length` tokens, from -1 to 0."""
    excess = length - (max_response_length - overlong_buffer_length)
    if excess <= 0:
        return 0.0
    return -excess / overlong_buffer_length if length <= max_response_length else -1.0


def exemplar(answer: str) -> str:
    """A short response."""
    return answer
