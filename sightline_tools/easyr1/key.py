"""A key of EasyR1's configuration, and how it is converted."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Assignments = Mapping[str, Any]
"""Dotted key of Sightline -> value."""


class NoEquivalent(Exception):
    """Sightline has no equivalent for this value of a key; the message says why and what to do.

    Args:
        why: The message.
        rest: Keys that can be taken over nevertheless.
    """

    def __init__(self, why: str, rest: Assignments | None = None) -> None:
        super().__init__(why)
        self.rest: Assignments = rest or {}


class Refused(Exception):
    """Neither EasyR1 nor Sightline can run with this value of a key, so the import stops. The message says why."""


@dataclass(frozen=True, slots=True)
class EasyR1Config:
    """A resolved configuration of EasyR1.

    Attributes:
        values: Every dotted key of the table with its value, which is the user's or EasyR1's default.
        given: The keys that the user wrote in a file or on the command line.
        folder: The folder of the user's file; the paths in it are also searched for here and above.
        out: The folder that the equivalent is written to, from which its paths start.
    """

    values: Mapping[str, Any]
    given: frozenset[str]
    folder: Path
    out: Path = Path()

    def __getitem__(self, key: str) -> Any:
        return self.values[key]


Convert = Callable[[Any, EasyR1Config], Assignments]
"""(value, whole configuration) -> assignments. Raises NoEquivalent or Refused."""

When = Callable[[Any, EasyR1Config], bool]
"""(value, whole configuration) -> whether a difference applies."""


@dataclass(frozen=True, slots=True)
class Difference:
    """Something that Sightline does differently from EasyR1: a text, and the values to which it applies."""

    when: When
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Key:
    """A row of the table of keys.

    Attributes:
        name: Dotted name in EasyR1.
        default: EasyR1's default, from its dataclasses (its example YAML sets some keys to other values).
        to: The keys of Sightline that it determines; empty where it has no equivalent.
        convert: How its value is converted; None takes the value as it is.
        remark: A remark for the page; for a key without an equivalent, the reason.
        differs: Differences that a run shows although the value was taken over.
        harmless: For a key without an equivalent, the values that may be left out without changing the run; None for
            all values.
    """

    name: str
    default: Any
    to: tuple[str, ...] = ()
    convert: Convert | None = None
    remark: str = ""
    differs: tuple[Difference, ...] = ()
    harmless: tuple[Any, ...] | None = None

    def assignments(self, config: EasyR1Config) -> Assignments:
        """The keys of Sightline that the value becomes. Raises NoEquivalent or Refused."""
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
    """A key whose value must be converted."""
    return Key(name=name, default=default, to=to, convert=convert, remark=remark, differs=tuple(differs))


def needless(name: str, default: Any, remark: str) -> Key:
    """A key that Sightline does not need, whatever its value."""
    return Key(name=name, default=default, remark=remark)


def where(*values: Any) -> When:
    """A difference applies to these values only."""
    return lambda value, config: value in values


def unless(*values: Any) -> When:
    """A difference applies to all values except these."""
    return lambda value, config: value not in values


def missing(name: str, default: Any, *harmless: Any, remark: str) -> Key:
    """A key for something that Sightline cannot do; the values in `harmless` do not ask for it."""
    return Key(name=name, default=default, remark=remark, harmless=harmless)
