"""The true answer of a row. Imports no library, because the scoring processes load this module."""

import json
import math
from typing import Any

Answer = str | int | float | bool | list[Any] | dict[str, Any]
"""A text, a number, a truth value, or lists and mappings of them (boxes, for example). Rewards get it unchanged."""


def answer_text(answer: Answer) -> str:
    """The answer as text, for people and graders: a text unchanged, any other value as JSON."""
    return answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False)


def read_answer(value: Any) -> Answer:
    """The value of a row's answer column. Raises ValueError if it is missing, blank, or no JSON value with finite
    numbers."""
    if value is None or value == "" or value != value:
        raise ValueError("the answer is missing")
    if isinstance(value, str):
        if not value.strip():
            raise ValueError("the answer is blank")
        return value
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"the answer is {value}, which is no number")
    try:
        answer: Answer = json.loads(json.dumps(value, allow_nan=False))
    except TypeError as error:
        what = "is no text, number, truth value, list or mapping of them"
        raise ValueError(f"the answer ({type(value).__name__}) {what}: {error}") from None
    except ValueError:  # of a number inside it
        raise ValueError(f"the answer holds a number that is infinite or none at all: {value!r:.200}") from None
    return answer
