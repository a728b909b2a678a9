"""The count of R1-V's SuperCLEVR evaluation (`src/eval/test_qwen2vl_counting_superclevr.py` of Deep-Agent/R1-V)."""

import re

from rl_core.rewards.sample import RewardSample

# As published: the first block that holds nothing but digits, of any script; other blocks are passed over.
_ANSWER = re.compile(r"<answer>\s*(\d+)\s*</answer>")


def compute_score(sample: RewardSample) -> dict[str, float]:
    """1 where the number equals the truth as a whole number, else 0; no number is wrong."""
    given = parse(sample.response)
    is_right = given is not None and _without_zeros(given) == _without_zeros(sample.ground_truth_text)
    return {"overall": float(is_right), "accuracy": float(is_right)}


def parse(response: str) -> str | None:
    """The digits of the first `<answer>` block that holds nothing else; None where there is no such block."""
    match = _ANSWER.search(response)
    return match.group(1) if match else None


def _without_zeros(digits: str) -> str:
    """Equal for equal whole numbers. int() would refuse 4300 digits."""
    return "".join(str(int(digit)) for digit in digits).lstrip("0") if digits.isdecimal() else digits
