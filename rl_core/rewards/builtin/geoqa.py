"""The reward of R1-V's GeoQA runs (`grpo.py` of Deep-Agent/R1-V, 2025): math-verify first, then equal text."""

from rl_core.rewards.forms import answer_or_whole, has_tagged_form, whole_response
from rl_core.rewards.grading import silence_limit_warning
from rl_core.rewards.sample import RewardSample


def compute_score(sample: RewardSample, format_weight: float = 0.5) -> dict[str, float]:
    """overall = (1 - format_weight) * accuracy + format_weight * format. As published, both have the same weight; there
    the reward is their sum, which gives the same advantages after the normalisation within the group.

    Accuracy is 1 if math-verify finds an equal expression anywhere in the response, the thoughts included, as
    published; or if the answer between the tags (without tags, the whole response) equals the text of the ground truth.
    The ground truth may have `<answer>` tags of its own, as in R1-V's data.
    """
    format_score = float(has_tagged_form(whole_response(sample)))
    given, truth = sample.response, sample.ground_truth_text
    accuracy = float(_verified(given, truth) or answer_or_whole(given) == answer_or_whole(truth))
    overall = (1.0 - format_weight) * accuracy + format_weight * format_score
    return {"overall": overall, "format": format_score, "accuracy": accuracy}


def parse(response: str) -> str | None:
    """The first answer in tags on a single line; where there is none, the whole response, which is then judged. None
    if that is blank."""
    return answer_or_whole(response) or None


def exemplar(answer: str) -> str:
    """A response that gets the full score."""
    return f"<think></think><answer>{answer}</answer>"


def _verified(response: str, ground_truth: str) -> bool:
    from math_verify import parse as expressions
    from math_verify import verify

    silence_limit_warning()
    given, truth = (expressions(text, parsing_timeout=None) for text in (response, ground_truth))
    # As published, the response is passed where math-verify expects the truth. math-verify swallows its own exceptions.
    return bool(verify(given, truth, timeout_seconds=None))
