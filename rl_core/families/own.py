"""A family of a person's own, which a config names by its file (`model.family`). A process computes the models of one
config: what this names is found wherever the family of a model is asked for, and nowhere before or after."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache

from rl_core.families.family import Family
from rl_core.user_code.function import find_function


class WrongFamily(ValueError):
    """What a config names is no family of its model."""


@dataclass(frozen=True, kw_only=True, slots=True)
class OwnFamily:
    """A family as a config names it, with the hashes of its files by their names."""

    written: str
    family: Family
    code: Mapping[str, str]


_written: str | None = None


@contextmanager
def own_family(written: str | None) -> Iterator[None]:
    """During a `with` block, the models of this process are of this family, or of those of Sightline if it is None.
    Nothing is loaded yet, so that what is wrong with it is a problem of the config among others."""
    global _written
    before = _written
    _written = written
    try:
        yield
    finally:
        _written = before


def keep_own_family(written: str | None) -> None:
    """The same to the end of this process: that of a worker, which serves one config."""
    global _written
    _written = written


def current_family() -> OwnFamily | None:
    """The family that the config of this process names; None where it names none. Raises WrongFamily where there is no
    such family, with the line where its import fails."""
    return None if _written is None else _loaded(_written)


@lru_cache
def _loaded(written: str) -> OwnFamily:
    try:
        found = find_function(written)
        value = found.load_value()
        code = found.code
    except (ValueError, OSError) as error:
        raise WrongFamily(f"{error}") from error
    if not isinstance(value, Family):
        raise WrongFamily(f"{written}: `{found.name}` is {type(value).__name__}, and no rl_core.families.family.Family")
    return OwnFamily(written=written, family=value, code=code)
