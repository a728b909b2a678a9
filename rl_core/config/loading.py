"""YAML with `extends:` and dotted overrides, resolved into a validated RunConfig."""

import difflib
import os
import shlex
import types
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Union, get_origin

from pydantic import BaseModel, ValidationError

from rl_core.config.algorithm import DEFAULT_TYPES
from rl_core.config.other_names import OTHER_NAMES
from rl_core.config.run import RunConfig
from rl_core.config.yaml_text import NotYaml, dump_yaml, parse_yaml
from rl_core.files import read_utf8, why_no_file
from rl_core.redaction import HIDDEN, redact
from rl_core.section import SECRET_ERROR, TYPE, names_a_secret, without_secrets
from rl_core.wording import MOST_SHOWN, shortened

Tree = dict[str, Any]

_PATHS_FROM: Final = "paths_from"
_LONGEST_REFUSAL: Final = 400
_MOST_PLACES: Final = 3


class ConfigError(ValueError):
    """The configuration is wrong; the message lists every problem with its key and what to do."""


def load_config(path: Path, overrides: Sequence[str] = ()) -> RunConfig:
    """Read a YAML file, follow `extends:`, apply `key.path=value` overrides and validate. Paths inside a config
    start from `paths_from`, which is its own folder and those of the files that it extends unless it says others;
    `extends:` is relative to the file that says it.

    Raises:
        ConfigError: a file is missing or no YAML mapping, `extends:` runs in a circle, the file is one of EasyR1's, or
            a key or value is refused; all refused keys are reported at once.
    """
    tree = read_tree(path)
    if _is_easyr1s(tree):
        raise ConfigError(
            f"{path} is a configuration of EasyR1: `sightline import easyr1 {shlex.quote(str(path))} --out FILE` "
            "writes Sightline's configuration for it"
        )
    return config_of(tree, overrides, str(path))


def config_of(tree: Tree, overrides: Sequence[str], origin: str) -> RunConfig:
    """Apply `key.path=value` overrides to a tree, in place, and validate it. Raises ConfigError as load_config."""
    for override in sorted(overrides, key=_types_first):
        apply_override(tree, override)
    return validate_config(tree, origin)


def validate_config(tree: Tree, origin: str) -> RunConfig:
    """Validate a resolved tree. Raises ConfigError naming every refused key of `origin`."""
    try:
        return RunConfig.model_validate(tree)
    except ValidationError as error:
        lines = [f"  {redact(_explain(problem))}" for problem in error.errors()]
    raise ConfigError(f"{shortened(origin)}: {len(lines)} problem(s)\n" + "\n".join(lines))


def _is_easyr1s(tree: Tree) -> bool:
    """Whether the tree has a key that every configuration of EasyR1 has and no configuration of Sightline may have."""
    data = tree.get("data")
    return isinstance(tree.get("worker"), Mapping) or (isinstance(data, Mapping) and "train_files" in data)


def read_tree(path: Path) -> Tree:
    """The file's mapping laid over the mapping of the file that it extends, and so on. Raises ConfigError where a file
    is missing or no YAML mapping, or `extends:` runs in a circle."""
    layers, seen = [read_yaml(path)], [os.path.realpath(path)]
    folders = _folders_of(layers[-1], seen[-1])
    while (parent := layers[-1].pop("extends", None)) is not None:
        if not isinstance(parent, str):
            wrong = type(parent).__name__
            raise ConfigError(f"{seen[-1]}: `extends:` must be the path of one config file, not a {wrong}")
        file = Path(seen[-1]).parent / parent
        try:
            layers.append(read_yaml(file))
        except ConfigError as error:
            raise ConfigError(f"{error} (`extends:` of {seen[-1]} names it)") from None
        seen.append(os.path.realpath(file))
        if seen[-1] in seen[:-1]:
            raise ConfigError(f"`extends:` runs in a circle: {' -> '.join(seen)}")
        folders += _folders_of(layers[-1], seen[-1])
    merged = layers.pop()
    while layers:
        merged = merge_trees(merged, layers.pop())
    return merged | {_PATHS_FROM: list(dict.fromkeys(folders))}


def _folders_of(layer: Tree, file: str) -> list[Any]:
    """Takes `paths_from` out of a layer: the folder of its file where it has none."""
    folders = layer.pop(_PATHS_FROM, [os.path.dirname(file)])  # noqa: PTH120 - of a text
    return folders if isinstance(folders, list) else [folders]


def read_yaml(path: Path) -> Tree:
    """The mapping in a YAML file. Raises ConfigError where the file is missing, not UTF-8, or holds no mapping."""
    if (reason := why_no_file(path)) is not None:
        raise ConfigError(f"no config file {shortened(str(path))}: {reason}")
    try:
        tree = parse_yaml(read_utf8(path))
    except NotYaml as error:
        raise ConfigError(f"{path} is not YAML that can be read: {error}") from None
    except ValueError as error:
        raise ConfigError(f"{error}") from None
    if not isinstance(tree, dict):
        raise ConfigError(f"{path} must hold a mapping of sections, not {type(tree).__name__}")
    return tree


def merge_trees(base: Tree, over: Mapping[str, Any]) -> Tree:
    """`over` laid over `base`: mappings are merged key by key, everything else is replaced. A mapping with another
    `type` replaces the old mapping as a whole, because the options of one type mean nothing to another."""
    merged = dict(base)
    for key, value in over.items():
        old = merged.get(key)
        if isinstance(old, dict) and isinstance(value, dict) and _same_kind(key, old, value):
            merged[key] = merge_trees(old, value)
        else:
            merged[key] = value
    return merged


def _same_kind(key: str, old: Tree, new: Mapping[str, Any]) -> bool:
    return TYPE not in new or new[TYPE] == old.get(TYPE, DEFAULT_TYPES.get(key))


def _types_first(override: str) -> tuple[bool, int]:
    """Sorts the override of a section's `type`, the outermost one first, before the overrides of other keys: a change
    of the type discards the rest of the section."""
    *section, last = override.partition("=")[0].strip().split(".")
    return last != TYPE, len(section) if last == TYPE else 0


def apply_override(tree: Tree, override: str) -> None:
    """Set the key that a text `key.path=value` names, in place. Raises ConfigError where it cannot be read."""
    key, separator, text = override.partition("=")
    shown = repr(shown_override(override))
    if not separator or not key.strip():
        raise ConfigError(f"override {shown} must read key.path=value")
    *parents, last = parts = key.strip().split(".")
    if not all(parts):
        raise ConfigError(f"override {shown}: a name is missing beside a dot of the key")
    node = tree
    for part in parents:
        section = {} if node.get(part) is None else node[part]
        if not isinstance(section, dict):
            raise ConfigError(f"override {shown}: {shortened(part)!r} is a value, not a section")
        node[part] = dict(section)  # another key may be an alias of this section, which stays as it is
        node = node[part]
    try:
        value = parse_yaml(text)
    except NotYaml as error:
        raise ConfigError(f"override {shown}: the value is not YAML that can be read: {error}") from None
    if last == TYPE and parents and value != node.get(TYPE, DEFAULT_TYPES.get(parents[-1])):
        node.clear()  # the keys of another type mean nothing to it
    node[last] = value


def shown_override(override: str) -> str:
    """The override as a message or a file may repeat it. Its value may name a secret as well as its key: a mapping."""
    key, separator, _ = override.partition("=")
    if names_a_secret(override):
        return shortened(f"{key}={HIDDEN}" if separator else HIDDEN)
    return shortened(redact(override))


def _explain(problem: Mapping[str, Any]) -> str:
    keys, section = resolve_location(problem["loc"])
    key = ".".join(shortened(redact(part)) for part in keys)
    if problem["type"] == "extra_forbidden":
        return f"{key}: unknown key; {_suggestion(keys, section)}"
    message = shortened(redact(str(problem["msg"])).removeprefix("Value error, "), _LONGEST_REFUSAL)
    if problem["type"] == SECRET_ERROR:
        return f"{key}: {message}"
    return f"{key}: {message}{_got(problem, keys)}{_advice(problem)}" if keys else message


def _got(problem: Mapping[str, Any], keys: Sequence[str]) -> str:
    """The refused value, for a person to find it by. Of a missing key pydantic has the whole section around it."""
    value = problem["input"]
    if problem["type"] == "missing" or isinstance(value, Mapping | list | tuple | set):
        return ""
    return f" (got {shortened(repr(without_secrets(value, '.'.join(keys))))})"


def _advice(problem: Mapping[str, Any]) -> str:
    is_written_as_number = problem["type"] == "string_type" and isinstance(problem["input"], bool | int | float)
    return "; a text that looks like a number or a truth value is written in quotes" if is_written_as_number else ""


def _suggestion(keys: Sequence[str], section: type[BaseModel]) -> str:
    """What to write in the place of an unknown key: the type of section that has it, what another project calls so, a
    key of the section that is written nearly so, or keys of this name elsewhere, the nearest ones first."""
    name, names = keys[-1], list(section.model_fields)
    if types_with_it := _types_with(name, keys[:-1]):
        return f"it belongs to {TYPE}: {' or '.join(types_with_it)}; set `{'.'.join(keys[:-1])}.{TYPE}` too"
    if name in OTHER_NAMES:
        leaf = OTHER_NAMES[name].partition("`")[2].partition("`")[0].rpartition(".")[2]
        return f"did you mean `{leaf}`?" if leaf in names else f"here it is {OTHER_NAMES[name]}"
    if close := difflib.get_close_matches(name[:MOST_SHOWN], names, n=1, cutoff=0.6):
        return f"did you mean `{close[0]}`?"
    elsewhere = sorted(_paths_of(name, RunConfig), key=lambda path: path.split(".")[0] != keys[0])
    if elsewhere:
        return f"did you mean {' or '.join(f'`{path}`' for path in elsewhere[:_MOST_PLACES])}?"
    return f"valid keys here: {', '.join(names)}"


def _types_with(name: str, keys: Sequence[str]) -> list[str]:
    """The types of the section at these keys that have a key of this name."""
    candidates: list[type[BaseModel]] = [RunConfig]
    for key in keys:
        candidates = [
            inner
            for section in candidates
            if key in section.model_fields
            for inner in _models_in(section.model_fields[key].annotation)
        ]
    return [f"{tag}" for section in candidates if name in section.model_fields for tag in _tags_of(section)]


def _paths_of(name: str, section: type[BaseModel], above: tuple[str, ...] = ()) -> Iterator[str]:
    """The dotted keys in a section, and in the sections inside it, whose last name is this one; each once."""
    found: dict[str, None] = {}
    for key, field in section.model_fields.items():
        if key == name and above:
            found[".".join((*above, key))] = None
        if get_origin(field.annotation) is not dict:
            for inner in _models_in(field.annotation):
                found |= dict.fromkeys(_paths_of(name, inner, (*above, key)))
    yield from found


def resolve_location(location: Sequence[str | int]) -> tuple[list[str], type[BaseModel]]:
    """The keys a user wrote to get to a place, and the section that holds the last one.

    pydantic puts a union's chosen tag into the location ("data", "train", "counting", "size"), and the kind of value
    that was tried ("rollout", "enforce_eager", "bool"); these are no keys.
    """
    keys: list[str] = []
    section: type[BaseModel] = RunConfig
    candidates: list[type[BaseModel]] = [RunConfig]
    in_mapping = is_value = False
    for part in map(str, location):
        if is_value and not part.isdecimal():
            continue
        tagged = [c for c in candidates if part in _tags_of(c)]
        if len(candidates) > 1 and tagged:
            candidates = tagged
            continue
        keys.append(part)
        if in_mapping:  # the part is a name of the user's own; what lies below it is one of the candidates
            in_mapping = False
            continue
        section = candidates[0] if candidates else section
        annotation = section.model_fields[part].annotation if part in section.model_fields else None
        candidates = _models_in(annotation)
        in_mapping = get_origin(annotation) is dict
        is_value = get_origin(annotation) in (Union, types.UnionType) and not candidates
    return keys, section


def _tags_of(section: type[BaseModel]) -> tuple[Any, ...]:
    field = section.model_fields.get("type")
    return getattr(field.annotation, "__args__", ()) if field else ()


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for argument in getattr(annotation, "__args__", ()) for model in _models_in(argument)]


def dump_config(config: RunConfig) -> str:
    """The resolved config as YAML, every default written out; `load_config` of it gives an equal config."""
    return dump_yaml(config.model_dump(mode="json"))
