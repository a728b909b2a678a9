"""The grade of R1-V's GeoQA evaluation (`src/eval/test_qwen2vl_geoqa.py` of Deep-Agent/R1-V)."""

from rl_core.rewards.grading import silence_limit_warning
from rl_core.rewards.sample import RewardSample


def compute_score(sample: RewardSample) -> dict[str, float]:
    """1 where math-verify finds the whole response and the truth equal, else 0. As published, the response stands where
    math-verify expects the truth, and no answer has to stand inside tags."""
    from math_verify import verify

    is_right = verify(_expressions(sample.response), _expressions(sample.ground_truth_text), timeout_seconds=None)
    return {"overall": float(is_right), "accuracy": float(is_right)}


def parse(response: str) -> str | None:
    """The first expression that math-verify reads; None where it reads none."""
    found = _expressions(response)
    return str(found[0]) if found else None


def _expressions(text: str) -> list[object]:
    """The published script's `parse(text)`. Its alarm works in a main thread alone; the scoring pool limits the call
    instead, and a response over the limit is wrong either way."""
    from math_verify import parse as expressions

    silence_limit_warning()
    found: list[object] = expressions(text, parsing_timeout=None)
    return found
