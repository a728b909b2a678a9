"""Turns what a reward function returned into named, finite numbers."""

import math
from collections.abc import Mapping
from typing import Any

from rl_core.wording import plain_text

OVERALL = "overall"

LONGEST_NAME = 100
"""Most characters of a component's name. Trackers cut longer names, and two names may be equal after the cut."""

LARGEST = 1e30
"""Largest absolute value of a component. Sums and squares of such numbers over a batch are still finite, and float32
can hold them."""


def components_of(result: object) -> dict[str, float]:
    """The components by name, of which a single number is `overall`. Raises ValueError where the result is neither a
    number nor a dict, a component no finite number up to LARGEST, a name too long, or `overall` missing."""
    named = {OVERALL: result} if _is_number(result) else result
    if not isinstance(named, Mapping):
        raise ValueError(f"returned {type(result).__name__}, not a number or a dict of numbers with `{OVERALL}`")
    components = {_checked_name(name): _checked_number(name, value) for name, value in named.items()}
    if OVERALL not in components:
        raise ValueError(f"returned no `{OVERALL}`, only {sorted(components)}")
    return components


def _checked_name(name: object) -> str:
    if not isinstance(name, str):
        raise ValueError(f"component name {name!r} is {type(name).__name__}, not str")
    plain = plain_text(name)
    if not 0 < len(plain) <= LONGEST_NAME:
        raise ValueError(f"the component name {plain[:20]!r}... has {len(plain)} characters, not 1 to {LONGEST_NAME}")
    return plain


def _is_number(value: object) -> bool:
    return hasattr(value, "__float__")  # scalars of numpy and torch have it too; isinstance(SupportsFloat) takes longer


def _checked_number(name: object, value: Any) -> float:
    if not _is_number(value):
        raise ValueError(f"component `{name}` is {type(value).__name__}, not a number")
    try:
        number = float(value)
    except Exception as error:  # noqa: BLE001 - an array of several numbers, an integer beyond any float, ...
        raise ValueError(f"component `{name}` is not a single number: {error}") from None
    if (reason := number_problem(number)) is not None:
        raise ValueError(f"component `{name}` {reason}")
    return number


def number_problem(number: float) -> str | None:
    """Why a number cannot be a component, as "is ..."; None if it can."""
    if not math.isfinite(number):
        return f"is {number}, not a finite number"
    return None if abs(number) <= LARGEST else f"is {number:g}, larger than {LARGEST:g} in absolute value"
