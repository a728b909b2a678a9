"""Inputs that no configuration should have, for every place where a person writes one."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, get_args

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from pydantic import BaseModel

from rl_core.config.run import RunConfig

BASE: Final = """\
experiment: hostile
data:
  train: {type: counting, size: 8, scene_seed: 1, image_size: 56}
  validation: {type: counting, size: 4, scene_seed: 2, image_size: 56}
  rollout_batch_size: 4
model: {source: {type: tiny}}
cold_start: {steps: 2}
reward: {function: count}
actor: {global_batch_size: 4}
tracking: {mlflow_uri: null}
"""

PATHS: Final = (
    *("pipe", "loop", "folder", "nothing", "nothing/below", "empty", "binary", "empty/below", "."),
    *("rows.jsonl", "prompt.jinja", "reward.py", "x" * 300, "y/" * 3000, "a b [c] *?", "~", "-", "/dev/zero"),
)
"""What `write_oddities` makes, what is not there, and what no file can be called."""


def write_oddities(folder: Path) -> None:
    """A folder with everything that PATHS names and that can be there."""
    (folder / "base.yaml").write_text(BASE)
    os.mkfifo(folder / "pipe")
    (folder / "loop").symlink_to("loop")
    (folder / "folder").mkdir()
    (folder / "empty").touch()
    (folder / "binary").write_bytes(bytes(range(256)))
    (folder / "a b [c] *?").write_text("{{ content }}")
    rows = [{"problem": f"What is {row}?", "answer": row} for row in range(9)]
    rows[3]["problem"] = "What? " * 2_000_000
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "prompt.jinja").write_text("{{ content }} Count.")
    (folder / "reward.py").write_text("def score(sample): return {'overall': 1.0, 'accuracy': 1.0}")


def every_key() -> list[str]:
    """The dotted key of every section and value, those of each kind of source among them."""
    return sorted(set(_keys(RunConfig, "")))


def _keys(section: type[BaseModel], prefix: str) -> Iterator[str]:
    for name, field in section.model_fields.items():
        yield f"{prefix}{name}"
        for inner in _sections(field.annotation):
            yield from _keys(inner, f"{prefix}{name}.")


def _sections(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _sections(argument)


KEYS: Final = every_key()

_FRAGMENTS: Final = (
    *("", "~", "null", "true", "false", "yes", "off", "010", "1:30", "1_000", "0x10", "-1", "0", "1", "2", "7"),
    *("99999999999", "9223372036854775807", "9223372036854775808", "1e309", "-1e309", "1e-400", "0.5"),
    *(".nan", ".inf", "-.inf", "1e5", "2026-02-30", "''", "' '", "'1'", '"\\0"', '"\\ud83d"', '"\\u202e"', '"\\e[2J"'),
    *("[]", "{}", "[1, 2]", "[true]", "{a: 1}", "{a: {b: {c: {}}}}", "{'': 1}", "{1: 2}", "[[[[[[[[1]]]]]]]]"),
    *("*a", "<<", "{<<: 1}", "{<<: {a: 1}}"),
    *(
        "!!python/object/apply:os.system [exit]",
        "!!binary x",
        "!!set {a}",
        "!!int x",
        "!own x",
        "a: b: c",
        "@",
        "`",
        "%",
    ),
    *("'*'", "'('", "'{{ content }}'", "x" * 5000),
    *("owner/name", "owner/name@split", "a@b", "sqlite:///pipe", "http://u:secret@host/", "file:///x", "databricks"),
    *("{type: counting, size: 8, scene_seed: 5}", "{type: counting}", "{type: huge}", "{type: pretrained, path: pipe}"),
    *(f"{{type: local, path: '{path}'}}" for path in PATHS),
    *(f"'{path}'" for path in PATHS),
    *(f"'{path}:score'" for path in PATHS),
    *(f"{{type: custom, function: '{path}:rows'}}" for path in PATHS),
    *("{type: custom, function: 'json:loads'}", "{type: custom, function: 'json.decoder:JSONDecoder', limit: 3}"),
    "{type: custom, function: 'itertools:count', kwargs: {step: {a: [null]}}}",
    "{type: mixture, sources: {}}",
    "{type: mixture, sources: {'': {type: counting, size: 8, scene_seed: 9}}}",
    "{type: mixture, sources: {a: {type: counting, size: 8, scene_seed: 9}, b: {type: local, path: rows.jsonl}}}",
    "{function: cuont}",
    "{mixture: [{function: count}, {function: reward.py:score, weight: .nan}]}",
)


def fragments() -> SearchStrategy[str]:
    """What may stand behind a colon or an equals sign."""
    written = st.one_of(
        st.text(max_size=30),
        st.integers().map(str),
        st.floats().map(repr),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.text(max_size=5),
            lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
            max_leaves=5,
        ).map(json.dumps),
    )
    return st.sampled_from(_FRAGMENTS) | st.sampled_from(_FRAGMENTS) | written


def keys() -> SearchStrategy[str]:
    """A key that there is, or one that is nearly so."""
    slips = st.sampled_from(
        [str.upper, lambda key: f"{key}.", lambda key: f".{key}", lambda key: key[:-1], lambda key: f"{key}.x" * 20]
    )
    right = st.sampled_from(KEYS)
    return right | right | right | st.builds(lambda key, slip: slip(key), right, slips) | st.text(max_size=20)


def overrides() -> SearchStrategy[str]:
    """One argument `key.path=value`, or what is none."""
    change = st.builds(lambda key, value: f"{key}={value}", keys(), fragments())
    return (change | change | change | st.text(max_size=20)).filter(
        lambda text: "\0" not in text and _is_argument(text)
    )


def _is_argument(text: str) -> bool:
    """Whether a shell could hand it over, and it is no option."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return not text.startswith("-")


def values() -> SearchStrategy[str]:
    """A config file that sets one key of the base."""
    return st.builds(_file_with, st.sampled_from(KEYS), fragments(), st.just("extends: base.yaml\n"))


def _file_with(key: str, value: str, head: str) -> str:
    *parents, last = key.split(".")
    lines = [f"{'  ' * depth}{name}:" for depth, name in enumerate(parents)]
    return head + "\n".join([*lines, f"{'  ' * len(parents)}{last}: {value}"]) + "\n"
