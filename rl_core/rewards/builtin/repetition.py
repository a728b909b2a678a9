"""The n-gram repetition penalty of Yeo et al. 2025 (arXiv 2502.03373, appendix C.2), as Open-R1 computes it."""

from rl_core.rewards.sample import RewardSample


def compute_score(sample: RewardSample, ngram_size: int = 3, max_penalty: float = -1.0) -> dict[str, float]:
    """overall = max_penalty * (1 - different n-grams / all n-grams), over the lower-case words of the response; 0 for
    a response with fewer words than `ngram_size`. Made for mixtures."""
    if max_penalty > 0.0:
        raise ValueError(f"max_penalty {max_penalty} rewards repetition; give a negative number")
    if ngram_size < 1:
        raise ValueError(f"ngram_size {ngram_size} is less than one word")
    words = sample.response.lower().split()
    ngrams = list(zip(*(words[start:] for start in range(ngram_size)), strict=False))
    if not ngrams:
        return {"overall": 0.0}
    return {"overall": max_penalty * (1.0 - len(set(ngrams)) / len(ngrams)) + 0.0}  # no negative zero


def exemplar(answer: str) -> str:
    """A response that repeats nothing."""
    return answer
