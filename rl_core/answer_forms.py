"""How data sets write an answer: behind ####, in tags, boxed at the end of a solution."""

import re
from collections.abc import Sequence
from typing import NamedTuple

_LONGEST = 100
_MOST_WORDS = 5
_ENOUGH = 0.9
_WORD = re.compile(r"(?<![\\\w])[^\W\d_]{2,}")  # no command of LaTeX
_TAG = re.compile(r"</?\w+>|<\|[^|<>\s]+\|>")


class AnswerForm(NamedTuple):
    """A regular expression whose group is the answer, and where that stands, in words."""

    pattern: str
    place: str


FORMS = (
    AnswerForm(r"\\boxed\{((?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*)\}", r"in \boxed{}"),
    AnswerForm(r"####\s*(.+?)\s*(?:<\|.*)?\s*\Z", "behind ####"),
    AnswerForm(r"(?s)<answer>(.*?)</answer>", "in <answer></answer>"),
    AnswerForm(r"(?s)\A(.+?)(?:<\|[^|<>\s]+\|>|</s>)+\s*\Z", "before a control token"),
)
"""The forms that `init` recognises; of two that fit, the earlier one stands inside the later one."""


def find_answer(pattern: str, text: str) -> str | None:
    """The group of the last match, without white space around it; None if nothing is found."""
    answers: list[str] = re.findall(pattern, text)
    return (answers[-1].strip() or None) if answers else None


def form_of(texts: Sequence[str]) -> AnswerForm | None:
    """The form of answers, nine in ten of which have it; None if they are answers alone, or of another form."""
    for form in FORMS:
        if texts and sum(find_answer(form.pattern, text) is not None for text in texts) >= _ENOUGH * len(texts):
            return form
    return None


def short_answer(text: str) -> str:
    """What a person would call the answer in a text of one of the forms; any other text as it is."""
    form = form_of([text])
    return text if form is None else find_answer(form.pattern, text) or text


def doubt(text: str) -> str | None:
    """Why a response can hardly give this answer word for word; None if it can."""
    if text.strip().startswith(("{", "[")) and text.strip().endswith(("}", "]")) and '"' in text:
        return "is JSON"
    if _TAG.search(text):
        return "holds a tag"
    if len(text.strip().splitlines()) > 1:
        return "has several lines"
    if len(text) > _LONGEST or len(_WORD.findall(text)) > _MOST_WORDS:
        return "is a sentence"
    return None
