"""The base of every configuration section."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, JsonValue, field_validator
from pydantic_core import PydanticCustomError

from rl_core.redaction import HIDDEN, redact

SECRET_ERROR = "secret"
"""pydantic's type of an error whose input must not be shown."""

Kwargs = dict[str, JsonValue]
"""Keyword arguments of a user's function."""

_BEYOND_64_BITS = 1 << 63

_SECRET_NAME = re.compile(r"api_?key|password|passwd|secret|access_?key|(auth|api|access|bearer|hf)_?token", re.I)


class Section(BaseModel):
    """A section of the run configuration: immutable, unknown keys refused, every field with a sentence and bounds.

    A default stands in the section's class and nowhere else; code that reads a field has no fallback of its own.
    """

    model_config = ConfigDict(
        extra="forbid", frozen=True, use_attribute_docstrings=True, validate_default=True, allow_inf_nan=False
    )

    @field_validator("*")
    @classmethod
    def _whole_numbers_have_64_bits(cls, value: Any) -> Any:
        """More than that neither files nor libraries take."""
        if any(isinstance(part, int) and abs(part) >= _BEYOND_64_BITS for part in _parts_of(value)):
            raise PydanticCustomError("beyond_64_bits", "Input should be a whole number of at most 64 bits")
        return value


def _parts_of(value: Any) -> Iterator[Any]:
    """A value of a field, or what its lists and mappings hold; sections look after their own."""
    if isinstance(value, dict | list | tuple):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _parts_of(item)
    else:
        yield value


def refused_secret(message: str) -> PydanticCustomError:
    """What a validator raises for a value that may be a secret: a config is written down in many places, so that
    secrets come from the environment alone. The error's report leaves the value out."""
    return PydanticCustomError(SECRET_ERROR, "{message}", {"message": message})


def refuse_secrets(kwargs: Kwargs) -> Kwargs:
    """The arguments of a user's function, as a validator of their field. Raises where one is named like a secret."""
    if named := [name for name in _names_in(kwargs) if names_a_secret(name)]:
        raise refused_secret(f"{', '.join(named)} looks like a secret: let the function read it from the environment")
    return kwargs


def _names_in(value: JsonValue) -> Iterator[str]:
    """Every key of a value, those of dicts inside it too."""
    if isinstance(value, dict):
        yield from value
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _names_in(item)


def names_a_secret(key: str) -> bool:
    """Whether a value under this key looks like a secret. Other names than those of the environment: `prompt_key` and
    `max_tokens` are words of a config."""
    return _SECRET_NAME.search(key) is not None


def without_secrets(value: Any, key: str = "") -> Any:
    """A value of a config, found under `key`, as a message may repeat it."""
    if names_a_secret(key):
        return HIDDEN
    match value:
        case str():
            return redact(value)
        case Mapping():
            return {name: without_secrets(item, f"{name}") for name, item in value.items()}
        case list() | tuple():
            return [without_secrets(item) for item in value]
        case _:
            return value
