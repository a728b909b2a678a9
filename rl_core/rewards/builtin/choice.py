"""Multiple choice: whether the response chooses the right letter, or all of the right letters and no other."""

import re

from rl_core.rewards.sample import RewardSample

_TAG = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)
_BOX = re.compile(r"\\boxed\{((?:[^{}]|\{[^{}]*\})*)\}")

_MARKUP = re.compile(r"\\(?:text|textbf|textit|mathrm|mathbf|bf|rm)\b|\\[()\[\]]|[*$`_{}]")
_ANNOUNCED = re.compile(  # "The correct answer is", "Option", "Answer:"
    r"(?:the\s+)?(?:correct\s+|final\s+)?(?:answer|option|choice)s?(?:\s+is|\s+are)?(?:\s*:\s*|\s+)", re.I
)
_LETTER = r"\(?(?<![A-Za-z])[A-Za-z](?![A-Za-z])\)?"
_LIST = re.compile(rf"{_LETTER}(?:(?:[\s,;/&+.]|\band\b|\bor\b)*{_LETTER})*\s*[.:,]?", re.I)
_RUN = re.compile(r"[A-Z]{2,}")  # "ABD"
# "B. a circle" and "B, a circle", but neither "A. or B" nor "A: a circle, B: a square" nor "A, maybe B".
_MARKED_TEXT = r"\s*(?:[.:\-\u2013\u2014]|(?<=\))|(?=\())\s*(?!(?:and|or|&)\b)(?!.*(?<![A-Za-z])[A-Z][).:])"
_TEXT_AFTER_COMMA = r"\s*,\s*(?!(?:and|or|&)\b)(?!.*(?<![A-Za-z])[A-Z](?![A-Za-z]))"
_EXPLAINED = re.compile(rf"({_LETTER})(?:{_MARKED_TEXT}|{_TEXT_AFTER_COMMA})\S.*", re.DOTALL)


def compute_score(sample: RewardSample, format_weight: float = 0.1) -> dict[str, float]:
    r"""overall = (1 - format_weight) * accuracy + format_weight * format.

    The choice is read from the last `<answer></answer>` (from a `\boxed{}` in it, if there is one), else from the last
    `\boxed{}`, else from a response that is letters alone. Format is 1 if it was read from one of the first two. Case,
    markup (`**B**`, `$B$`, `\text{B}`), parentheses and a text after a single letter ("B. a circle") do not matter.
    The ground truth is written in the same ways; with several letters ("A,C", "A and C", "AC") all of them have to be
    chosen, and a response that names a letter too many is wrong.
    """
    truth = _letters(sample.ground_truth_text)
    if truth is None:
        raise ValueError(f"the ground truth {sample.ground_truth_text!r} is not a choice; `choice` cannot judge it")
    given = parse(sample.response)
    accuracy = float(given == truth)
    format_score = float(given is not None and _marked(sample.response) is not None)
    overall = (1.0 - format_weight) * accuracy + format_weight * format_score
    return {"overall": overall, "format": format_score, "accuracy": accuracy}


def parse(response: str) -> str | None:
    """The chosen letters in upper case and in order, such as "B" or "A,C"; None if there are none."""
    marked = _marked(response)
    return _letters(response, explained=False) if marked is None else _letters(marked)


def exemplar(answer: str) -> str:
    """A response that gets the full score."""
    return f"<answer>{answer}</answer>"


def _marked(response: str) -> str | None:
    tagged = _TAG.findall(response)
    boxed = _BOX.findall(tagged[-1] if tagged else response)
    marked: list[str] = boxed or tagged
    return marked[-1] if marked else None


def _letters(text: str, *, explained: bool = True) -> str | None:
    """The letters of a text that holds nothing else, or, if `explained`, a single letter and a text after it."""
    plain = _MARKUP.sub("", text).strip()
    plain = plain[match.end() :] if (match := _ANNOUNCED.match(plain)) else plain
    if _LIST.fullmatch(plain):
        return _joined(re.findall(_LETTER, plain))
    if _RUN.fullmatch(plain) and list(plain) == sorted(set(plain)):
        return _joined(plain)
    if explained and (match := _EXPLAINED.fullmatch(plain)):
        return _joined([match.group(1)])
    return None


def _joined(letters: list[str] | str) -> str:
    return ",".join(sorted({letter.strip("()").upper() for letter in letters}))
