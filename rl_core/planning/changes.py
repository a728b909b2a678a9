"""Settings by their dotted keys: what a config says, the config with another value, and such changes for a person."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self, TypeVar

from pydantic import BaseModel

Section = TypeVar("Section", bound=BaseModel)


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """Another value of a setting.

    Attributes:
        key: Its dotted key.
        value: What it is set to; `auto` leaves it to the forecast.
        shown: The value as a config file has it; with `auto`, what it becomes.
        note: What has to be changed with it, for a person.
    """

    key: str
    value: Any
    shown: str
    note: str = ""

    @classmethod
    def of(cls, key: str, value: Any) -> Self:
        """The change of a key to a plain value."""
        return cls(key=key, value=value, shown=str(value).lower() if isinstance(value, bool) else str(value))

    def __str__(self) -> str:
        return f"{self.key} to {self.shown}{self.note}"


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


def with_changes(section: Section, changes: Sequence[Change]) -> Section:
    """A copy with these changes, of which a later one of the same key counts."""
    for change in changes:
        section = changed(section, change.key, change.value)
    return section
