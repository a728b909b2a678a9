"""Counting: whether the first whole number in an `<answer></answer>` is the right one."""

import re

from rl_core.rewards.sample import RewardSample

# No count has more than nine digits, and int() refuses more than 4300 of them.
_ANSWER = re.compile(r"<answer>\s*([0-9]{1,9})\s*</answer>")
_FORMAT = re.compile(r"(?:(?!<answer>).)*<answer>\s*[0-9]{1,9}\s*</answer>\s*", re.DOTALL)


def compute_score(sample: RewardSample, format_weight: float = 0.1) -> dict[str, float]:
    """overall = (1 - format_weight) * accuracy + format_weight * format.

    Accuracy is judged by the first `<answer></answer>` that holds a whole number. Format is 1 if the response has a
    single `<answer></answer>`, with a whole number in it, and ends with it; any text may come before it.
    """
    given = parse(sample.response)
    truth = _whole_number(sample.ground_truth_text)
    accuracy = float(given is not None and int(given) == truth)
    format_score = float(_FORMAT.fullmatch(sample.response) is not None)
    overall = (1.0 - format_weight) * accuracy + format_weight * format_score
    return {"overall": overall, "format": format_score, "accuracy": accuracy}


def parse(response: str) -> str | None:
    """The first whole number that is alone in an `<answer></answer>`; None if there is none."""
    match = _ANSWER.search(response)
    return match.group(1) if match else None


def exemplar(answer: str) -> str:
    """A response that gets the full score."""
    return f"<answer>{answer}</answer>"


def _whole_number(ground_truth: str) -> int:
    try:
        return int(ground_truth)
    except ValueError:
        raise ValueError(f"the ground truth {ground_truth!r} is not a whole number; `count` cannot judge it") from None
