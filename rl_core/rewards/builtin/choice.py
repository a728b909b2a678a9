"""Multiple choice: whether the response chooses the right letter."""

import re

from rl_core.rewards.sample import RewardSample

_TAG = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)
_BOX = re.compile(r"\\boxed\{(?:\\text\{)?([^{}]*)\}")
_LETTER = re.compile(r"\s*\(?([A-Za-z])(?:[).:,]|\s*$)")  # "B", "(b)", "B. a circle"; not "Because" or "a circle"
_LETTER_ALONE = re.compile(r"\s*\(?([A-Za-z])\)?[.:,]?\s*")


def compute_score(sample: RewardSample, format_weight: float = 0.1) -> dict[str, float]:
    r"""overall = (1 - format_weight) * accuracy + format_weight * format.

    The letter is read from the last `<answer></answer>` (from a `\boxed{}` in it, if there is one), else from the last
    `\boxed{}`, else from a response that is a letter alone. Format is 1 if the letter was read from one of the first
    two. Case does not matter. The ground truth is a letter alone or a letter followed by its text ("B. a circle").
    """
    truth = _read(_LETTER.match(sample.ground_truth_text))
    if truth is None:
        raise ValueError(f"the ground truth {sample.ground_truth_text!r} is not a choice; `choice` cannot judge it")
    given = parse(sample.response)
    accuracy = float(given == truth)
    format_score = float(given is not None and _marked(sample.response) is not None)
    overall = (1.0 - format_weight) * accuracy + format_weight * format_score
    return {"overall": overall, "format": format_score, "accuracy": accuracy}


def parse(response: str) -> str | None:
    """The chosen letter, in upper case; None if there is none."""
    marked = _marked(response)
    return _read(_LETTER_ALONE.fullmatch(response) if marked is None else _LETTER.match(marked))


def exemplar(answer: str) -> str:
    """A response that gets the full score."""
    return f"<answer>{answer}</answer>"


def _marked(response: str) -> str | None:
    tagged = _TAG.findall(response)
    boxed = _BOX.findall(tagged[-1] if tagged else response)
    marked: list[str] = boxed or tagged
    return marked[-1] if marked else None


def _read(match: re.Match[str] | None) -> str | None:
    return match.group(1).upper() if match else None
