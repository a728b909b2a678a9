"""The parts that a stage's digest covers, so that a stage that is made again can say what has changed."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rl_core.digests import digest_of
from rl_core.user_code.function import file_named
from rl_core.wording import first_of

Parts = Mapping[str, str]
"""[name of a part, as a user knows it: "actor.optim.lr", "rewards/count.py"] -> hash of its value."""

_UPSTREAM = "what comes before: "
_PARTS_OF_STAGES = {"training-rows": "prepare"}
"""[part of a stage] -> the stage that makes it."""


def parts_of(depends_on: Mapping[str, Any], *, after: Mapping[str, str]) -> dict[str, str]:
    """The hash of each part that a stage's digest covers, the digests of the stages before it included."""
    parts = {_name(path): digest_of(value) for path, value in _leaves(depends_on, ())}
    upstream = {f"{_UPSTREAM}{name}": digest for name, digest in after.items()}
    return {**parts, **upstream}


def stages_before(parts: Parts) -> list[str]:
    """The stages whose results a stage of these parts reads; `training` stands for its last epoch."""
    names = [name.removeprefix(_UPSTREAM) for name in parts if name.startswith(_UPSTREAM)]
    return sorted({_PARTS_OF_STAGES.get(name, name) for name in names})


def what_changed(before: Parts, now: Parts) -> str:
    """The parts that have changed, in words; of the stages before only where no part of the stage itself has."""
    names = sorted(name for name in before.keys() | now.keys() if before.get(name) != now.get(name))
    own = [name for name in names if not name.startswith(_UPSTREAM)] or names
    return f"{first_of(own)} changed"


def _leaves(value: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    if isinstance(value, Mapping) and value:
        for name, part in value.items():
            yield from _leaves(part, (*path, str(name)))
    else:
        yield path, value


def _name(path: tuple[str, ...]) -> str:
    match path:
        case ("reward", "code", function, part) | ("code", function, part):
            own_file = file_named(function)
            return part if own_file is None else (Path(own_file).parent / part).as_posix()
        case ("reward", "reward", *keys):
            return ".".join(("reward", *keys))
    return ".".join(path)
