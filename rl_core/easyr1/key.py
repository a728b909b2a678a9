"""One key of EasyR1's configuration and what becomes of it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Assignments = Mapping[str, Any]
"""Dotted Sightline key -> value."""


class NoEquivalent(Exception):
    """This value of a key cannot be expressed; the message says why and what to do.

    Args:
        why: The message.
        rest: What can be taken over nevertheless.
    """

    def __init__(self, why: str, rest: Assignments | None = None) -> None:
        super().__init__(why)
        self.rest: Assignments = rest or {}


class Refused(Exception):
    """No experiment can be made of this value of a key, here or there: the import stops. The message says why."""


@dataclass(frozen=True, slots=True)
class EasyR1Config:
    """A resolved configuration of EasyR1.

    Attributes:
        values: Every key of the table, dotted, with its value: the user's or EasyR1's default.
        given: The keys that the user wrote, in a file or on the command line.
        folder: Where the user's file lies; its paths are looked for here and above as well.
    """

    values: Mapping[str, Any]
    given: frozenset[str]
    folder: Path

    def __getitem__(self, key: str) -> Any:
        return self.values[key]


Convert = Callable[[Any, EasyR1Config], Assignments]
"""(value, whole configuration) -> assignments. Raises NoEquivalent or Refused."""

When = Callable[[Any, EasyR1Config], bool]
"""(value, whole configuration) -> whether something holds of it."""


@dataclass(frozen=True, slots=True)
class Difference:
    """Something that is not done as in EasyR1: for which values, and what."""

    when: When
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Key:
    """A row of the table.

    Attributes:
        name: Dotted, as in EasyR1.
        default: EasyR1's, from its dataclasses (its example YAML sets some of them otherwise).
        to: The Sightline keys that it decides; empty where it has no equivalent.
        convert: How; None takes the value as it is.
        remark: What differs; for a key without an equivalent, why.
        differs: What the run would show that it does not do there, where the value is taken over.
        harmless: For a key without an equivalent: the values that change nothing when they are left out; None for any.
    """

    name: str
    default: Any
    to: tuple[str, ...] = ()
    convert: Convert | None = None
    remark: str = ""
    differs: tuple[Difference, ...] = ()
    harmless: tuple[Any, ...] | None = None

    def assignments(self, config: EasyR1Config) -> Assignments:
        """What the key's value becomes. Raises NoEquivalent or Refused."""
        value = config[self.name]
        return dict.fromkeys(self.to, value) if self.convert is None else self.convert(value, config)

    def is_lost(self, value: Any) -> bool:
        """Whether leaving this value out changes the run."""
        return not self.to and self.harmless is not None and value not in self.harmless


def same(name: str, default: Any, *to: str, remark: str = "", differs: Sequence[Difference] = ()) -> Key:
    """A key whose value is taken as it is."""
    return Key(name=name, default=default, to=to, remark=remark, differs=tuple(differs))


def converted(
    name: str, default: Any, convert: Convert, *to: str, remark: str = "", differs: Sequence[Difference] = ()
) -> Key:
    """A key whose value must be rewritten."""
    return Key(name=name, default=default, to=to, convert=convert, remark=remark, differs=tuple(differs))


def needless(name: str, default: Any, remark: str) -> Key:
    """A key that Sightline has no use for, whatever its value."""
    return Key(name=name, default=default, remark=remark)


def where(*values: Any) -> When:
    """Only these values."""
    return lambda value, config: value in values


def unless(*values: Any) -> When:
    """All but these values."""
    return lambda value, config: value not in values


def missing(name: str, default: Any, *harmless: Any, remark: str) -> Key:
    """A key for what Sightline cannot do; `harmless` are the values that do not ask for it."""
    return Key(name=name, default=default, remark=remark, harmless=harmless)
