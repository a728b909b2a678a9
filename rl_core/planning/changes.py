"""Settings by their dotted keys: what a config says, and the config with another value."""

from typing import Any, TypeVar

from pydantic import BaseModel

Section = TypeVar("Section", bound=BaseModel)


def configured(section: BaseModel, key: str) -> Any:
    """The value of a key, such as `trainer.offload`."""
    value: Any = section
    for name in key.split("."):
        value = getattr(value, name)
    return value


def changed(section: Section, key: str, value: Any) -> Section:
    """A copy with another value of a key, which is taken to be valid."""
    name, _, rest = key.partition(".")
    return section.model_copy(update={name: changed(getattr(section, name), rest, value) if rest else value})
