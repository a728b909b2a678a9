"""Counting: the first number inside `<answer></answer>` equals the truth."""

import re

from rl_core.rewards.sample import RewardSample

# Nine digits hold every count; more of them are no count, and int() would refuse 4300.
_ANSWER = re.compile(r"<answer>\s*([0-9]{1,9})\s*</answer>")
_FORMAT = re.compile(r"(?:(?!<answer>).)*<answer>\s*[0-9]{1,9}\s*</answer>\s*", re.DOTALL)


def compute_score(sample: RewardSample, format_weight: float = 0.1) -> dict[str, float]:
    """overall = (1 - format_weight) * accuracy + format_weight * format; by default accuracy decides with 0.9.

    Accuracy reads the first answer block that holds a whole number. Format asks for one answer block, with a whole
    number in it, at the end; thoughts before it are welcome.

    Raises:
        ValueError: the ground truth is no whole number.
    """
    given = parse(sample.response)
    truth = _whole_number(sample.ground_truth_text)
    accuracy = float(given is not None and int(given) == truth)
    format_score = float(_FORMAT.fullmatch(sample.response) is not None)
    overall = (1.0 - format_weight) * accuracy + format_weight * format_score
    return {"overall": overall, "format": format_score, "accuracy": accuracy}


def parse(response: str) -> str | None:
    """The first whole number that stands alone in an answer block; None without one."""
    match = _ANSWER.search(response)
    return match.group(1) if match else None


def exemplar(answer: str) -> str:
    """A response of the full score."""
    return f"<answer>{answer}</answer>"


def _whole_number(ground_truth: str) -> int:
    try:
        return int(ground_truth)
    except ValueError:
        raise ValueError(f"the ground truth {ground_truth!r} is no whole number; `count` cannot judge it") from None
