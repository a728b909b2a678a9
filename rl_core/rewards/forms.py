"""Forms of a response: what it must look like, and how the answer is read from it."""

import re

_SPACED_SIGN = re.compile(r"\s*(<|>|/)\s*")
_BOXED = re.compile(r"<think>.*</think>.*\\boxed\{.*\}.*", re.DOTALL)
_TAGGED = re.compile(r"<think>.*?</think>\s*<answer>.*?</answer>", re.DOTALL)
_ONE_LINE_ANSWER = re.compile(r"<answer>(.*?)</answer>")  # as published by R1-V, `.` stops at a line break


def tighten(response: str) -> str:
    """Without white space around `<`, `>` and `/`, wherever they stand: what EasyR1's `math` does before all else."""
    return _SPACED_SIGN.sub(r"\1", response)


def has_boxed_form(tightened: str) -> bool:
    r"""`<think>...</think>` at the very start and a `\boxed{}` somewhere after it; what follows the box is free."""
    return _BOXED.fullmatch(tightened) is not None


def has_tagged_form(response: str) -> bool:
    """Thoughts and answer in their tags, with nothing before, after or, but for white space, between them."""
    return _TAGGED.fullmatch(response) is not None


def one_line_answer(response: str) -> str | None:
    """The first answer that stands on one line inside its tags, stripped; None without one."""
    match = _ONE_LINE_ANSWER.search(response)
    return match.group(1).strip() if match else None
