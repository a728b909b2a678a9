"""The reward for answers in tags published as EasyR1's `r1v.py`."""

from rl_core.rewards.forms import answer_or_whole, has_tagged_form, whole_response
from rl_core.rewards.grading import grader_named
from rl_core.rewards.sample import RewardSample


def compute_score(sample: RewardSample, format_weight: float = 0.5, grader: str = "mathruler") -> dict[str, float]:
    """overall = (1 - format_weight) * accuracy + format_weight * format.

    Format is 1 if the response is `<think>...</think><answer>...</answer>` and nothing else, except white space in
    between; a `<think>` at the end of the prompt is the response's. Accuracy is judged by the first answer whose tags
    are on the same line, or by the whole response if there is none: a bare "5" has accuracy 1 and format 0, an answer
    on a line between its tags format 1 and accuracy 0. The published numbers were computed with the grader mathruler.
    """
    format_score = float(has_tagged_form(whole_response(sample)))
    accuracy = _accuracy(sample.response, sample.ground_truth_text, grader)
    overall = (1.0 - format_weight) * accuracy + format_weight * format_score
    return {"overall": overall, "format": format_score, "accuracy": accuracy}


def parse(response: str) -> str | None:
    """The first answer in tags on a single line; where there is none, the whole response, which is then judged. None
    if that is blank."""
    return answer_or_whole(response) or None


def exemplar(answer: str) -> str:
    """A response that gets the full score."""
    return f"<think></think><answer>{answer}</answer>"


def _accuracy(response: str, ground_truth: str, grader: str) -> float:
    equal = grader_named(grader)
    try:
        return float(equal(answer_or_whole(response), ground_truth.strip()))
    except Exception:  # noqa: BLE001 - as published: an answer on which the grader fails is wrong
        return 0.0
