"""Converts EasyR1's YAML and command line to Sightline's config, and names every difference."""

import difflib
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from rl_core.config.loading import ConfigError, Tree, apply_override, read_yaml, resolve_location
from rl_core.config.run import RunConfig
from rl_core.config.yaml_text import dump_yaml
from rl_core.redaction import redact
from rl_core.section import without_secrets
from sightline_tools.easyr1.key import EasyR1Config, Key, NoEquivalent, Refused
from sightline_tools.easyr1.keys_data import ALGORITHM, DATA
from sightline_tools.easyr1.keys_trainer import TRAINER
from sightline_tools.easyr1.keys_worker import WORKER
from sightline_tools.easyr1.values import read_value

KEYS: Final[dict[str, Key]] = {key.name: key for key in (*DATA, *ALGORITHM, *WORKER, *TRAINER)}

ALWAYS: Final[Mapping[str, Any]] = {
    "data.video_max_frames": 768,
    "trainer.val_mode": "sampled",
    "algorithm.old_log_probs": "recompute",
}
"""Settings for what EasyR1 does without having a key for it: a video has up to 768 frames, validation samples as
`worker.rollout.val_override_config` says, and the ratio starts from log-probs that the actor computes."""


_UNKNOWN = "not a known key of EasyR1 (docs/migration.md lists all of them)"


@dataclass(frozen=True, kw_only=True, slots=True)
class Note:
    """A key of EasyR1 that was not taken over unchanged.

    Attributes:
        key: The key's name in EasyR1.
        value: Its value.
        text: Why it was not taken over, and what to do.
    """

    key: str
    value: Any
    text: str

    def __str__(self) -> str:
        return f"{self.key} = {without_secrets(self.value, self.key)}: {self.text}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Imported:
    """The result of an import.

    Attributes:
        tree: Sightline's config as nested mappings. It has every key for which EasyR1 has one, because the defaults
            differ.
        lost: Keys that have no equivalent and would change the run.
        differing: Keys that were taken over and do not do exactly the same in Sightline.
        needless: The user's keys that Sightline does not need, whatever their value.
        missing: Keys that must be set by hand before the config is valid.
    """

    tree: Tree
    lost: Sequence[Note]
    differing: Sequence[Note]
    needless: Sequence[Note]
    missing: Sequence[str]

    def text(self, title: str) -> str:
        """The config as YAML, with all differences as comments at its beginning."""
        lost = [f"no equivalent: {note}" for note in self.lost]
        differing = [f"differs: {note}" for note in self.differing]
        head = [title, *lost, *differing, *(f"set {key}" for key in self.missing)]
        comments = "".join(f"# {line}\n" for entry in head for line in entry.splitlines())
        return comments + dump_yaml(self.tree)


def import_easyr1(path: Path | None, overrides: Sequence[str] = (), *, out: Path = Path()) -> Imported:
    """Translate a configuration of EasyR1, for a file in the folder `out`.

    Args:
        path: Its YAML file; None where there is none. Keys that are not given have EasyR1's defaults.
        overrides: Texts `key.path=value`, as on the command line after `python3 -m verl.trainer.main config=...`.

    Raises:
        ConfigError: the configuration is missing or no YAML mapping, an override cannot be read, EasyR1 would refuse a
            value, or a file that the configuration names does not exist. The message names all such values.
    """
    given = _given(path, overrides)
    config, refusals = _resolved(given, path, out)
    flat, lost, more = _converted(config)
    if refusals := [*refusals, *more]:
        problems = "\n".join(f"  {refusal}" for refusal in refusals)
        raise ConfigError(f"{path or 'the command line'}: {len(refusals)} problem(s)\n{problems}")
    tree, refused, missing = _accepted(flat, config)
    unknown = [Note(key=name, value=given[name], text=_unknown(name)) for name in given if name not in KEYS]
    needless = [
        Note(key=name, value=config[name], text=KEYS[name].remark)
        for name in KEYS
        if name in config.given and not KEYS[name].to and not KEYS[name].is_lost(config[name])
    ]
    return Imported(
        tree=tree,
        lost=[*unknown, *lost, *refused],
        differing=_differing(config, {note.key for note in (*lost, *refused)}),
        needless=needless,
        missing=missing,
    )


def _given(path: Path | None, overrides: Sequence[str]) -> dict[str, Any]:
    """The values that the user wrote, by dotted key."""
    tree = {} if path is None else read_yaml(path)
    for override in overrides:
        apply_override(tree, override)
    return dict(_leaves(tree))


def _resolved(given: Mapping[str, Any], path: Path | None, out: Path) -> tuple[EasyR1Config, list[Note]]:
    """The value of every key, and notes about the values that EasyR1 would refuse."""
    values: dict[str, Any] = {}
    refusals: list[Note] = []
    for name, key in KEYS.items():
        values[name] = key.default
        if name in given:
            try:
                values[name] = read_value(name, given[name], key.default)
            except ValueError as reason:
                refusals.append(Note(key=name, value=given[name], text=str(reason)))
    folder = Path() if path is None else path.parent
    return EasyR1Config(values=values, given=frozenset(given), folder=folder, out=out), refusals


def _unknown(name: str) -> str:
    close = difflib.get_close_matches(name, KEYS, n=1, cutoff=0.8)
    return f"{_UNKNOWN}; did you mean `{close[0]}`?" if close else _UNKNOWN


def _differing(config: EasyR1Config, named: Container[str]) -> list[Note]:
    """Keys whose value has another effect in Sightline, without the keys in `named`."""
    return [
        Note(key=name, value=config[name], text=difference.text)
        for name, key in KEYS.items()
        for difference in key.differs
        if name not in named and difference.when(config[name], config)
    ]


def _leaves(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted keys with their values. A key of the table may have a mapping as its value."""
    for name, value in tree.items():
        key = f"{prefix}{name}"
        if isinstance(value, Mapping) and key not in KEYS:
            yield from _leaves(value, f"{key}.")
        else:
            yield key, value


def _converted(config: EasyR1Config) -> tuple[dict[str, Any], list[Note], list[Note]]:
    """Dotted key of Sightline -> value; notes about what is lost, and notes about what stops the import."""
    flat: dict[str, Any] = {}
    lost: list[Note] = []
    refusals: list[Note] = []
    for name, key in KEYS.items():
        value = config[name]
        try:
            flat |= key.assignments(config)
        except NoEquivalent as reason:
            flat |= reason.rest
            lost.append(Note(key=name, value=value, text=str(reason)))
        except Refused as reason:
            refusals.append(Note(key=name, value=value, text=str(reason)))
        if key.is_lost(value):
            lost.append(Note(key=name, value=value, text=key.remark))
    return {**flat, **ALWAYS}, lost, refusals


def _accepted(flat: Mapping[str, Any], config: EasyR1Config) -> tuple[Tree, list[Note], list[str]]:
    """The tree without values that Sightline refuses, notes about these values, and the keys that are still missing."""
    kept = dict(flat)
    refused: list[Note] = []
    while True:
        tree = nested(kept)
        problems = _problems(tree)
        wrong = problems.keys() & kept.keys()
        if not wrong:
            ordered = {name: tree[name] for name in RunConfig.model_fields if name in tree}
            return ordered, refused, sorted(problems)
        for key in sorted(wrong):
            del kept[key]
            text = f"{key} does not accept it ({problems[key]}) and keeps its default"
            refused += [Note(key=name, value=config[name], text=text) for name in _deciders(key)]


def _problems(tree: Tree) -> dict[str, str]:
    """Dotted key -> what is wrong with it; empty for a valid config."""
    try:
        RunConfig.model_validate(tree)
    except ValidationError as error:
        return {".".join(resolve_location(problem["loc"])[0]): redact(problem["msg"]) for problem in error.errors()}
    return {}


def _deciders(key: str) -> list[str]:
    return [name for name, entry in KEYS.items() if key in entry.to]


def nested(flat: Mapping[str, Any]) -> Tree:
    """Dotted keys as nested mappings, in order. A key below a mapping that was set as a whole is added to it."""
    tree: Tree = {}
    for key, value in flat.items():
        *parents, last = key.split(".")
        node = tree
        for part in parents:
            node = node.setdefault(part, {})
        node[last] = dict(value) if isinstance(value, Mapping) else list(value) if isinstance(value, tuple) else value
    return tree
