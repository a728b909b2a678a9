"""The reward for boxed answers published as EasyR1's `math.py`."""

from mathruler.grader import extract_boxed_content

from rl_core.rewards.forms import has_boxed_form, tighten, whole_response
from rl_core.rewards.grading import grader_named
from rl_core.rewards.sample import RewardSample

_NO_BOX = "None"  # what mathruler reads from a response without a closed box


def compute_score(sample: RewardSample, format_weight: float = 0.1, grader: str = "mathruler") -> dict[str, float]:
    r"""overall = (1 - format_weight) * accuracy + format_weight * format.

    Format is 1 if the response starts with `<think>...</think>` and has a `\boxed{}` after it; any text may follow, and
    a `<think>` at the end of the prompt is the response's. Accuracy is judged by the last `\boxed{}`, even inside the
    thoughts, and does not depend on the format. As published, white space around `<`, `>` and `/` is first removed from
    the whole response, the answer included. The published numbers were computed with the grader mathruler.
    """
    response = tighten(sample.response)
    format_score = float(has_boxed_form(tighten(whole_response(sample))))
    accuracy = float(grader_named(grader)(extract_boxed_content(response), sample.ground_truth_text))
    overall = (1.0 - format_weight) * accuracy + format_weight * format_score
    return {"overall": overall, "format": format_score, "accuracy": accuracy}


def parse(response: str) -> str | None:
    r"""The content of the last `\boxed{}`; None if there is no closed one."""
    answer = extract_boxed_content(tighten(response))
    return None if answer == _NO_BOX else str(answer)


def exemplar(answer: str) -> str:
    """A response that gets the full score."""
    return f"<think></think>\\boxed{{{answer}}}"
