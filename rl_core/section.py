"""The base class of all configuration sections, and sections that are chosen by their `type`."""

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import reduce
from operator import or_
from typing import Annotated, Any, Final, get_args

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
)
from pydantic_core import PydanticCustomError

from rl_core.problem import Problem
from rl_core.redaction import HIDDEN, redact_addresses, redact_tree

TYPE: Final = "type"
"""The key by which a section is chosen."""

SECRET_ERROR: Final = "secret"
"""The type of pydantic errors whose input must not be shown."""

Kwargs = dict[str, JsonValue]
"""Keyword arguments of a user function."""

_SECRET_NAME = re.compile(r"api_?key|password|passwd|secret|access_?key|(auth|api|access|bearer|hf)_?token", re.I)


class Section(BaseModel):
    """A section of the run configuration: immutable, without unknown keys; every field has bounds, and below it a text
    of what it means. Defaults are here and nowhere else; code that reads a field has no fallback of its own."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True, allow_inf_nan=False)

    def problems(self) -> Iterator[Problem]:
        """What is wrong with the values of this section, beyond the bounds of single ones."""
        yield from ()


def problems_in(value: Any, key: str = "") -> Iterator[Problem]:
    """The problems of the section with this dotted key, which is empty for the whole config, and of all sections inside
    it; of a list or mapping those of its sections. Any other value has none."""
    match value:
        case Section():
            yield from (problem.below(key) for problem in value.problems())
            inside: Iterable[tuple[object, Any]] = value
        case Mapping():
            inside = value.items()
        case tuple():
            inside = enumerate(value)
        case _:
            return
    for name, item in inside:
        yield from problems_in(item, f"{key}.{name}" if key else f"{name}")


Choices = Mapping[str, type[Section]]
"""`type` -> section."""


def choices_in(names: Mapping[str, object], base: type[Any]) -> Choices:
    """The sections among a module's `names` that a config can choose: subclasses of `base` with a `type`."""
    classes = (value for value in names.values() if isinstance(value, type))
    sections = (each for each in classes if issubclass(each, Section) and issubclass(each, base))
    return {kind_of(section): section for section in sections if get_args(section.model_fields[TYPE].annotation)}


def kind_of(section: type[BaseModel]) -> str:
    """The `type` of a section."""
    return str(get_args(section.model_fields[TYPE].annotation)[0])


def one_of(choices: Choices, *, default: str) -> Any:
    """The annotation of a field for one of these sections. A mapping without a `type` gets the `default`."""

    def with_type(value: Any) -> Any:
        return {TYPE: default, **value} if isinstance(value, Mapping) else value

    return Annotated[reduce(or_, choices.values()), Field(discriminator=TYPE), BeforeValidator(with_type)]


def refused_secret(message: str) -> PydanticCustomError:
    """The error of a validator for a value that may be a secret, which its report does not show."""
    return PydanticCustomError(SECRET_ERROR, "{message}", {"message": message})


def without_password(address: str, variables: str) -> str:
    """The address. Raises PydanticCustomError, which names the environment's variables for it, if it has a password."""
    if redact_addresses(address) != address:
        raise refused_secret(f"a config holds no password: set {variables} in the environment")
    return address


def refuse_secrets(kwargs: Kwargs) -> Kwargs:
    """The arguments of a user function. Raises PydanticCustomError if the name of one looks like a secret's."""
    if named := [name for name in _names_in(kwargs) if names_a_secret(name)]:
        raise refused_secret(f"{', '.join(named)} looks like a secret: let the function read it from the environment")
    return kwargs


def _names_in(value: JsonValue) -> Iterator[str]:
    if isinstance(value, dict):
        yield from value
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _names_in(item)


def names_a_secret(key: str) -> bool:
    """Whether the value of this key may be a secret. Unlike in the environment, `prompt_key` and `max_tokens` are
    ordinary."""
    return _SECRET_NAME.search(key) is not None


def without_secrets(value: Any, key: str = "") -> Any:
    """The config value of `key` without secrets, for messages."""
    return HIDDEN if names_a_secret(key) else redact_tree(value, names_a_secret)
