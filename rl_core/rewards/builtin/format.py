"""The format of a response alone: for mixtures with a reward that judges the answer."""

from rl_core.rewards.forms import has_boxed_form, has_tagged_form, tighten, whole_response
from rl_core.rewards.sample import RewardSample


def compute_score(sample: RewardSample, form: str = "tagged") -> dict[str, float]:
    r"""overall = 1 for a response of the right format, else 0. `form` is `tagged`, the format of `r1v`:
    `<think>...</think><answer>...</answer>` and nothing else; or `boxed`, the format of `math`: first
    `<think>...</think>`, then a `\boxed{}`. A `<think>` at the end of the prompt is the response's."""
    if form not in ("tagged", "boxed"):
        raise ValueError(f"there is no form {form!r}, only tagged and boxed")
    response = whole_response(sample)
    has_form = has_tagged_form(response) if form == "tagged" else has_boxed_form(tighten(response))
    return {"overall": float(has_form)}


def exemplar(answer: str) -> str:
    r"""A response that has both forms."""
    return f"<think></think><answer>\\boxed{{{answer}}}</answer>"
