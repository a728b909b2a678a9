"""The true answer of a row. Imports no library, because the scoring processes load this module."""

import datetime
import decimal
import json
import math
from collections.abc import Mapping
from typing import Any

Answer = str | int | float | bool | list[Any] | dict[str, Any]
"""A text, a number, a truth value, or lists and mappings of them (boxes, for example). Rewards get it unchanged."""


def answer_text(answer: Answer) -> str:
    """The answer as text, for people and graders: a text unchanged, any other value as JSON."""
    return answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False)


def written(value: Any) -> Any:
    """A value of a table with its decimals, dates and times, also those inside it, as a person writes them: "3.50",
    "2026-11-25", "14:30". A decimal with more than two places has no zeros at its end, and midnight is its date."""
    match value:
        case decimal.Decimal():
            text = f"{value:f}"
            return text.rstrip("0").rstrip(".") if len(text.partition(".")[2]) > 2 else text
        case datetime.datetime():
            naive = value.replace(tzinfo=None)
            zone = value.isoformat().removeprefix(naive.isoformat())
            text = naive.isoformat(sep=" ").removesuffix(":00")
            return text.removesuffix(" 00:00") if text.endswith(" 00:00") and zone in ("", "+00:00") else text + zone
        case datetime.time():
            return value.isoformat().removesuffix(":00") if value.tzinfo is None else value.isoformat()
        case datetime.date() | datetime.timedelta():
            return str(value)
        case Mapping():
            return {key: written(item) for key, item in value.items()}
        case list() | tuple():
            return [written(item) for item in value]
        case _:
            return value


def read_answer(value: Any) -> Answer:
    """The value of a row's answer column, as it is `written`. Raises ValueError if it is missing, blank, or no JSON
    value with finite numbers."""
    if value is None or value == "" or value != value:
        raise ValueError("the answer is missing")
    if isinstance(value, str):
        if not value.strip():
            raise ValueError("the answer is blank")
        return value
    if isinstance(value, float | decimal.Decimal) and not math.isfinite(value):
        raise ValueError(f"the answer is {value}, which is no number")
    try:
        answer: Answer = json.loads(json.dumps(written(value), allow_nan=False))
    except TypeError as error:
        what = "is no text, number, truth value, list or mapping of them"
        raise ValueError(f"the answer ({type(value).__name__}) {what}: {error}") from None
    except ValueError:  # of a number inside it
        raise ValueError(f"the answer holds a number that is infinite or none at all: {value!r:.200}") from None
    return answer
