"""Sections that are chosen by their `type`: the list of choices, and the annotation of the field for the choice."""

from collections.abc import Mapping
from functools import reduce
from operator import or_
from typing import Annotated, Any, Final, get_args

from pydantic import BaseModel, BeforeValidator, Field

from rl_core.section import Section

TYPE: Final = "type"

Choices = Mapping[str, type[Section]]
"""`type` -> section."""


def choices_in(names: Mapping[str, object], base: type[Any]) -> Choices:
    """The sections among a module's `names` that a config can choose: subclasses of `base` with a `type` of their
    own."""
    classes = (value for value in names.values() if isinstance(value, type))
    sections = (each for each in classes if issubclass(each, Section) and issubclass(each, base))
    return {kind_of(section): section for section in sections if get_args(section.model_fields[TYPE].annotation)}


def kind_of(section: type[BaseModel]) -> str:
    """The `type` of a section."""
    return str(get_args(section.model_fields[TYPE].annotation)[0])


def has_option(choices: Choices, kind: object, name: str) -> bool:
    """Whether there is a section of this `type`, and it has a key of this name."""
    return isinstance(kind, str) and kind in choices and name in choices[kind].model_fields


def one_of(choices: Choices, *, default: str) -> Any:
    """The annotation of a field for one of these sections. A mapping without a `type` gets the `default`."""

    def with_type(value: Any) -> Any:
        return {TYPE: default, **value} if isinstance(value, Mapping) else value

    return Annotated[reduce(or_, choices.values()), Field(discriminator=TYPE), BeforeValidator(with_type)]
