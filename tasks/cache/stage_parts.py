"""The parts that a stage's digest covers, so that a stage that is made again can say what has changed."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from rl_core.user_code.function import file_named

Parts = Mapping[str, str]
"""[name of a part, as a user knows it: "actor.optim.lr", "rewards/count.py"] -> hash of its value."""

_HASH_LENGTH = 12
_MOST_NAMES = 4
_UPSTREAM = "what comes before: "
_PARTS_OF_STAGES = {"training-rows": "prepare"}
"""[part of a stage] -> the stage that makes it."""


_CALLED: Final[Mapping[str, Mapping[str, str]]] = {
    "prepare": {
        "template": "the text of data.prompt_template",
        "chat_template": "the text of data.override_chat_template",
        "weights": "the files of model.source.path",
        "train": "the rows of data.train",
        "validation": "the rows of data.validation",
        "cold_start": "the rows of cold_start.source",
        "target_template": "cold_start.target_template",
    },
    "cold-start": {"shuffle": "data.shuffle"},
    "train": {"order": "data", "schedule": "the length of the run, which the learning rate follows"},
    "evaluate": {"checkpoint": "merge.checkpoint", "max_response_length": "rollout.max_response_length"},
    "merge": {"checkpoint": "merge.checkpoint", "probe_tolerance": "merge.probe_tolerance"},
    "model-card": {"push": "merge.push"},
    "push": {"push": "merge.push"},
    "report": {"gallery_items": "tracking.gallery_items"},
}
"""[kind of stage] -> names for its parts that are not keys of the config."""


def parts_of(kind: str, depends_on: Mapping[str, Any], *, after: Mapping[str, str]) -> dict[str, str]:
    """The hash of each part that a stage's digest covers, the digests of the stages before it included."""
    called = _CALLED.get(kind, {})
    parts = {_name(path, called): _hash(value) for path, value in _leaves(depends_on, ())}
    upstream = {f"{_UPSTREAM}{name}": digest[:_HASH_LENGTH] for name, digest in after.items()}
    return {**parts, **upstream}


def stages_before(parts: Parts) -> list[str]:
    """The stages whose results a stage of these parts reads; `training` stands for its last epoch."""
    names = [name.removeprefix(_UPSTREAM) for name in parts if name.startswith(_UPSTREAM)]
    return sorted({_PARTS_OF_STAGES.get(name, name) for name in names})


def what_changed(before: Parts, now: Parts) -> str:
    """The parts that have changed, in words; of the stages before only where no part of the stage itself has."""
    names = sorted(name for name in before.keys() | now.keys() if before.get(name) != now.get(name))
    own = [name for name in names if not name.startswith(_UPSTREAM)] or names
    more = f" and {len(own) - _MOST_NAMES} more" if len(own) > _MOST_NAMES else ""
    return f"{', '.join(own[:_MOST_NAMES])}{more} changed"


def _leaves(value: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    if isinstance(value, Mapping) and value:
        for name, part in value.items():
            yield from _leaves(part, (*path, str(name)))
    else:
        yield path, value


def _name(path: tuple[str, ...], called: Mapping[str, str]) -> str:
    match path:
        case ("reward", "code", function, part) | ("code", function, part):
            own_file = file_named(function)
            return part if own_file is None else (Path(own_file).parent / part).as_posix()
        case ("reward", "reward", *keys):
            return ".".join(("reward", *keys))
        case (first, *keys):
            return ".".join((called.get(first, first), *keys))
    return ""


def _hash(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:_HASH_LENGTH]
