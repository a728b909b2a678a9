"""The formats of a response that the built-in rewards ask for, and how they read the answer from it."""

import re

from rl_core.rewards.sample import RewardSample

_SPACED_SIGN = re.compile(r"\s*(<|>|/)\s*")
_BOXED = re.compile(r"<think>.*</think>.*\\boxed\{.*\}.*", re.DOTALL)
_TAGGED = re.compile(r"<think>.*?</think>\s*<answer>.*?</answer>", re.DOTALL)
_ONE_LINE_ANSWER = re.compile(r"<answer>(.*?)</answer>")  # as published by R1-V, `.` stops at a line break

_OPENED = "<think>"


def whole_response(sample: RewardSample) -> str:
    """The response, with the `<think>` that the chat template may have written before it at the end of the prompt: what
    has the form. The answer is read from what the model itself has written."""
    return f"{_OPENED}{sample.response}" if opens_thoughts(sample.prompt) else sample.response


def opens_thoughts(prompt: str) -> bool:
    """Whether a prompt ends with an open `<think>`."""
    return prompt.rstrip().endswith(_OPENED)


def tighten(response: str) -> str:
    """The response without white space around `<`, `>` and `/`, which EasyR1's `math` removes first."""
    return _SPACED_SIGN.sub(r"\1", response)


def has_boxed_form(tightened: str) -> bool:
    r"""Whether a response starts with `<think>...</think>` and has a `\boxed{}` after it, followed by any text."""
    return _BOXED.fullmatch(tightened) is not None


def has_tagged_form(response: str) -> bool:
    """Whether a response is `<think>...</think><answer>...</answer>` and nothing else but white space between."""
    return _TAGGED.fullmatch(response) is not None


def answer_or_whole(response: str) -> str:
    """The content of the first `<answer></answer>` on a single line, or the whole response; stripped."""
    match = _ONE_LINE_ANSWER.search(response)
    return (match.group(1) if match else response).strip()
