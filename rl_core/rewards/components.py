"""From what a reward function returned to named, finite numbers."""

import math
from collections.abc import Mapping
from typing import SupportsFloat

from rl_core.wording import plain_text

OVERALL = "overall"

LONGEST_NAME = 100
"""Characters of a component's name: trackers cut longer ones, and two that were cut alike would be one metric."""

LARGEST = 1e30
"""No component may be further from 0: sums and squares of such numbers over any batch are still finite, and float32
holds them."""


def components_of(result: object) -> dict[str, float]:
    """Named numbers, `overall` among them. A bare number is the `overall` of a score without other components.

    Raises:
        ValueError: it is no number and no dict, a component is no finite number or further than LARGEST from 0, its
            name is empty or longer than LONGEST_NAME, or `overall` is missing; the message names which.
    """
    named = {OVERALL: result} if isinstance(result, SupportsFloat) else result
    if not isinstance(named, Mapping):
        raise ValueError(f"returned {type(result).__name__}, not a number or a dict of numbers with `{OVERALL}`")
    components = {_checked_name(name): _checked_number(name, value) for name, value in named.items()}
    if OVERALL not in components:
        raise ValueError(f"returned no `{OVERALL}`, just {sorted(components)}")
    return components


def _checked_name(name: object) -> str:
    if not isinstance(name, str):
        raise ValueError(f"component name {name!r} is {type(name).__name__}, not str")
    plain = plain_text(name)
    if not 0 < len(plain) <= LONGEST_NAME:
        raise ValueError(f"the component name {plain[:20]!r}... has {len(plain)} characters, not 1 to {LONGEST_NAME}")
    return plain


def _checked_number(name: object, value: object) -> float:
    if not isinstance(value, SupportsFloat):  # numpy's and torch's scalars are such, and no Real
        raise ValueError(f"component `{name}` is {type(value).__name__}, not a number")
    try:
        number = float(value)
    except Exception as error:  # noqa: BLE001 - an array of several numbers, an integer beyond any float, ...
        raise ValueError(f"component `{name}` is no single float: {error}") from None
    if (reason := number_problem(number)) is not None:
        raise ValueError(f"component `{name}` {reason}")
    return number


def number_problem(number: float) -> str | None:
    """Why a number is no reward, "is ..."; None for one that is."""
    if not math.isfinite(number):
        return f"is {number}, not a finite number"
    return None if abs(number) <= LARGEST else f"is {number:g}, further than {LARGEST:g} from 0"
