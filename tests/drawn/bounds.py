"""Every number of the configuration with the bounds that pydantic holds it to."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, get_args

import annotated_types
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from rl_core.config.run import RunConfig


@dataclass(frozen=True, kw_only=True)
class Bound:
    """A value on or beyond a bound.

    Attributes:
        key: Dotted key of the number.
        value: What stands at the bound or just outside.
        allowed: Whether the bound belongs to what is allowed.
    """

    key: str
    value: float
    allowed: bool


def every_bound() -> list[Bound]:
    """The bounds of all numbers that are reached through sections alone, unions and lists apart."""
    return list(_bounds(RunConfig, ""))


def _bounds(section: type[BaseModel], prefix: str) -> Iterator[Bound]:
    for name, field in section.model_fields.items():
        for inner in _sections(field.annotation):
            yield from _bounds(inner, f"{prefix}{name}.")
        for constraint in field.metadata:
            yield from _of_constraint(f"{prefix}{name}", constraint, field)


def _sections(annotation: Any) -> list[type[BaseModel]]:
    """The section that a field holds, optional or not; none for a union of kinds, whose `type` must be chosen."""
    choices = [annotation] if isinstance(annotation, type) else list(get_args(annotation))
    found = [choice for choice in choices if isinstance(choice, type) and issubclass(choice, BaseModel)]
    return found if len(found) == 1 else []


def _of_constraint(key: str, constraint: Any, field: FieldInfo) -> Iterator[Bound]:
    step = 1 if int in (field.annotation, *get_args(field.annotation)) else 0.5
    match constraint:
        case annotated_types.Ge(ge=value):
            yield Bound(key=key, value=value, allowed=True)
            yield Bound(key=key, value=value - step, allowed=False)
        case annotated_types.Le(le=value):
            yield Bound(key=key, value=value, allowed=True)
            yield Bound(key=key, value=value + step, allowed=False)
        case annotated_types.Gt(gt=value):
            yield Bound(key=key, value=value, allowed=False)
        case annotated_types.Lt(lt=value):
            yield Bound(key=key, value=value, allowed=False)
