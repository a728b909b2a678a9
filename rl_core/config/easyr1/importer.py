"""From EasyR1's YAML and command line to Sightline's config, and what was lost on the way."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from rl_core.config.easyr1.key import EasyR1Config, Key, NoEquivalent
from rl_core.config.easyr1.table import KEYS
from rl_core.config.loading import ConfigError, Tree, apply_override, parse_value, read_yaml, resolve_location
from rl_core.config.run import RunConfig
from rl_core.config.section import without_secrets
from rl_core.config.yaml_text import NotYaml, dump_yaml
from rl_core.redaction import redact

_UNKNOWN = "no key of EasyR1 that is known here (docs/migration.md has them all)"


@dataclass(frozen=True, kw_only=True, slots=True)
class Note:
    """A key that was not taken over as it stands.

    Attributes:
        key: EasyR1's.
        value: The value there.
        text: Why, and what to do.
    """

    key: str
    value: Any
    text: str

    def __str__(self) -> str:
        return f"{self.key} = {without_secrets(self.value, self.key)}: {self.text}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Imported:
    """What an import gives.

    Attributes:
        tree: Sightline's config as nested mappings; every key that EasyR1 decides is in it, since the defaults differ.
        lost: What has no equivalent and would change the run.
        needless: The user's keys that nothing needs here, whatever they say.
        missing: Keys that must be set by hand before the config is valid.
    """

    tree: Tree
    lost: Sequence[Note]
    needless: Sequence[Note]
    missing: Sequence[str]

    def text(self, title: str) -> str:
        """The config as YAML, with what was lost as comments at its head."""
        head = [title, *(f"no equivalent: {note}" for note in self.lost), *(f"set {key}" for key in self.missing)]
        comments = "".join(f"# {line}\n" for entry in head for line in entry.splitlines())
        return comments + dump_yaml(self.tree)


def import_easyr1(path: Path, overrides: Sequence[str] = ()) -> Imported:
    """Translate a configuration of EasyR1.

    Args:
        path: Its YAML file.
        overrides: `key.path=value`, as after `python3 -m verl.trainer.main config=...`.

    Raises:
        ConfigError: the file is missing or no YAML mapping, or an override cannot be read.
    """
    given = _given(path, overrides)
    config = _resolved(given, path)
    flat, lost = _converted(config)
    tree, refused, missing = _accepted(flat, config)
    unknown = [Note(key=name, value=given[name], text=_UNKNOWN) for name in given if name not in KEYS]
    needless = [
        Note(key=name, value=config[name], text=KEYS[name].remark)
        for name in KEYS
        if name in config.given and not KEYS[name].to and not KEYS[name].is_lost(config[name])
    ]
    return Imported(tree=tree, lost=[*unknown, *lost, *refused], needless=needless, missing=missing)


def _given(path: Path, overrides: Sequence[str]) -> dict[str, Any]:
    """What the user wrote, by dotted key."""
    tree = read_yaml(path)
    for override in overrides:
        apply_override(tree, override)
    return dict(_leaves(tree))


def _resolved(given: Mapping[str, Any], path: Path) -> EasyR1Config:
    values: dict[str, Any] = {}
    for name, key in KEYS.items():
        try:
            values[name] = typed = _typed(given.get(name, key.default), key.default)
        except NotYaml as error:
            raise ConfigError(f"{path}: {name} is neither a number nor valid YAML: {error}") from None
        if not _suits(typed, key):
            raise ConfigError(
                f"{path}: {name} cannot be {without_secrets(typed, name)}; EasyR1's own value is {key.default}"
            )
    return EasyR1Config(values=values, given=frozenset(given), folder=path.parent)


def _leaves(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted keys down to those that the table has, which may hold mappings."""
    for name, value in tree.items():
        key = f"{prefix}{name}"
        if isinstance(value, Mapping) and key not in KEYS:
            yield from _leaves(value, f"{key}.")
        else:
            yield key, value


def _typed(value: Any, default: Any) -> Any:
    """YAML 1.1 reads 1e-6 as text, EasyR1's own reader as a number."""
    return parse_value(value) if isinstance(value, str) and isinstance(default, int | float) else value


def _suits(value: Any, key: Key) -> bool:
    """Whether a value is of a kind that the key's conversion can read; what is taken as it is, our own bounds judge."""
    if key.convert is None:
        return True
    match key.default:
        case int() | float():
            return isinstance(value, int | float)
        case Mapping():
            return isinstance(value, Mapping)
        case tuple() | list():
            return isinstance(value, Sequence)
        case _:
            return isinstance(value, str | int | float | None)


def _converted(config: EasyR1Config) -> tuple[dict[str, Any], list[Note]]:
    flat: dict[str, Any] = {}
    lost: list[Note] = []
    for name, key in KEYS.items():
        value = config[name]
        try:
            flat |= key.assignments(config)
        except NoEquivalent as reason:
            flat |= reason.rest
            lost.append(Note(key=name, value=value, text=str(reason)))
        if key.is_lost(value):
            lost.append(Note(key=name, value=value, text=key.remark))
    return flat, lost


def _accepted(flat: Mapping[str, Any], config: EasyR1Config) -> tuple[Tree, list[Note], list[str]]:
    """The tree without the values that Sightline's own bounds refuse, and the keys that are still missing."""
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
            text = f"{key} does not take it ({problems[key]})"
            refused += [Note(key=name, value=config[name], text=text) for name in _deciders(key)]


def _problems(tree: Tree) -> dict[str, str]:
    """Dotted key -> what is wrong there; empty for a valid config."""
    try:
        RunConfig.model_validate(tree)
    except ValidationError as error:
        return {".".join(resolve_location(problem["loc"])[0]): redact(problem["msg"]) for problem in error.errors()}
    return {}


def _deciders(key: str) -> list[str]:
    return [name for name, entry in KEYS.items() if key in entry.to]


def nested(flat: Mapping[str, Any]) -> Tree:
    """Dotted keys as nested mappings, in order; a key below a mapping that was set whole adds to it."""
    tree: Tree = {}
    for key, value in flat.items():
        *parents, last = key.split(".")
        node = tree
        for part in parents:
            node = node.setdefault(part, {})
        node[last] = dict(value) if isinstance(value, Mapping) else list(value) if isinstance(value, tuple) else value
    return tree
