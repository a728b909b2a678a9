"""The reward published with DAPO (Yu et al. 2025, arXiv 2503.14476) and as EasyR1's `dapo.py`."""

import re

from rl_core.rewards.builtin.overlong import soft_overlong_penalty
from rl_core.rewards.sample import RewardSample

_ANSWER = re.compile(r"Answer\s*:\s*([^\n]+)", re.IGNORECASE)
_READ_CHARACTERS = 300
_NO_ANSWER = "[INVALID]"  # as published: a ground truth of this text would be right for a response without an answer

_REPLACED = (
    ("an ", ""),
    ("a ", ""),
    (".$", "$"),
    ("\\$", ""),
    ("\\ ", ""),
    (" ", ""),
    ("mbox", "text"),
    (",\\text{and}", ","),
    ("\\text{and}", ","),
    ("\\text{m}", "\\text{}"),
)

_WORDS = re.split(
    r"\s+",
    r"square ways integers dollars mph inches hours km units \ldots sue points feet minutes digits cents degrees cm gm "
    r"pounds meters meals edges students childrentickets multiples",
)

_MARKS = (
    "\\text{s}",
    "\\text{.}",
    "\\text{\ns}",
    "\\text{}^2",
    "\\text{}^3",
    "\\text{\n}",
    "\\text{}",
    "\\mathrm{th}",
    "^\\circ",
    "^{\\circ}",
    "\\;",
    ",\\!",
    "{,}",
    '"',
    "\\dots",
)

_REWRITTEN = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"(.*?)(\$)(.*?)(\$)(.*)", r"$\3$"),  # the mathematics of a sentence
        (r"(\\text\{)(.*?)(\})", r"\2"),
        (r"(\\textbf\{)(.*?)(\})", r"\2"),
        (r"(\\overline\{)(.*?)(\})", r"\2"),
        (r"(\\boxed\{)(.*)(\})", r"\2"),
        (r"(frac)([^{])(.)", r"frac{\2}{\3}"),  # \frac12 is \frac{1}{2}
        (r"(sqrt)([^{])", r"sqrt{\2}"),  # \sqrt3 is \sqrt{3}
    )
)


def compute_score(
    sample: RewardSample, max_response_length: int, overlong_buffer_length: int, overlong_penalty_factor: float
) -> dict[str, float]:
    """overall = accuracy + overlong_penalty_factor * overlong.

    Accuracy is 1 if the last "Answer: ..." within the last 300 characters equals the ground truth after Minerva's
    normalisation, else -1. Overlong is the soft penalty, from -1 to 0. `accuracy_normalized` is the accuracy as 0 or 1,
    for evaluation and group filtering.
    """
    given = parse(sample.response)
    is_right = normalise_answer(_NO_ANSWER if given is None else given) == normalise_answer(sample.ground_truth_text)
    accuracy = 1.0 if is_right else -1.0
    overlong = soft_overlong_penalty(sample.response_length, max_response_length, overlong_buffer_length)
    return {
        "overall": accuracy + overlong_penalty_factor * overlong,
        "accuracy": accuracy,
        "overlong": overlong,
        "accuracy_normalized": 0.5 * (accuracy + 1.0),
    }


def parse(response: str) -> str | None:
    """The text after the last "Answer:", to the end of its line; None if there is none."""
    answers = _ANSWER.findall(response[-_READ_CHARACTERS:])
    return answers[-1] if answers else None


def exemplar(answer: str) -> str:
    """A response that gets the full score."""
    return f"Answer: {answer}"


def normalise_answer(answer: str) -> str:
    r"""Minerva's normalisation of a final answer (Lewkowycz et al. 2022, arXiv 2206.14858, appendix D.1). The order of
    the replacements matters and is the published one, with its oddities: every "a " is removed, even at the end of
    "alpha ", and "\text{m}" becomes nothing."""
    form = answer.split("=")[-1]
    for before, after in _REPLACED:
        form = form.replace(before, after)
    for removed in (*_WORDS, *_MARKS):
        form = form.replace(removed, "")
    for pattern, replacement in _REWRITTEN:
        form = pattern.sub(replacement, form)
    form = form.replace("$", "")
    if form.replace(",", "").isdigit():
        form = form.replace(",", "")
    return form.strip()
