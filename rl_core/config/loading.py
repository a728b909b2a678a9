"""YAML with `extends:` and dotted overrides, resolved into a validated RunConfig."""

import difflib
import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_origin

import yaml
from pydantic import BaseModel, ValidationError

from rl_core.config.run import RunConfig
from rl_core.config.section import SECRET_ERROR, names_a_secret, without_secrets
from rl_core.config.yaml_text import NotYaml, parse_yaml
from rl_core.files import read_utf8
from rl_core.redaction import HIDDEN, redact

Tree = dict[str, Any]


class ConfigError(ValueError):
    """The configuration is wrong; the message lists every problem with its key and what to do."""


def load_config(path: Path, overrides: Sequence[str] = ()) -> RunConfig:
    """Read a YAML file, follow `extends:`, apply `key.path=value` overrides and validate.

    Paths inside a config are relative to the working directory, as on a command line; `extends:` is relative to the
    file that says it.

    Raises:
        ConfigError: a file is missing or no YAML mapping, `extends:` runs in a circle, or a key or value is refused;
            all refused keys are reported at once.
    """
    tree = read_tree(path, ())
    for override in overrides:
        apply_override(tree, override)
    return validate_config(tree, str(path))


def validate_config(tree: Tree, origin: str) -> RunConfig:
    """Validate a resolved tree. Raises ConfigError naming every refused key of `origin`."""
    try:
        return RunConfig.model_validate(tree)
    except ValidationError as error:
        lines = [f"  {redact(_explain(problem))}" for problem in error.errors()]
        raise ConfigError(f"{origin}: {len(lines)} problem(s)\n" + "\n".join(lines)) from None


def read_tree(path: Path, seen: tuple[Path, ...]) -> Tree:
    """The file's mapping laid over the one it extends. Raises ConfigError as load_config does."""
    path = path.resolve()
    if path in seen:
        raise ConfigError(f"`extends:` runs in a circle: {' -> '.join(map(str, (*seen, path)))}")
    tree = read_yaml(path)
    parent = tree.pop("extends", None)
    if parent is None:
        return tree
    if not isinstance(parent, str):
        raise ConfigError(f"{path}: `extends:` must be the path of one config file, not a {type(parent).__name__}")
    return merge_trees(read_tree(path.parent / parent, (*seen, path)), tree)


def read_yaml(path: Path) -> Tree:
    """The mapping in a YAML file. Raises ConfigError naming the file when it is missing, not UTF-8, or holds none."""
    if not path.is_file():
        raise ConfigError(f"no config file {path}")
    try:
        tree = parse_yaml(read_utf8(path))
    except NotYaml as error:
        raise ConfigError(f"{path} is not valid YAML: {error}") from None
    except ValueError as error:
        raise ConfigError(f"{error}") from None
    if not isinstance(tree, dict):
        raise ConfigError(f"{path} must hold a mapping of sections, not {type(tree).__name__}")
    return tree


def merge_trees(base: Tree, over: Mapping[str, Any]) -> Tree:
    """`over` laid on `base`: mappings merge key by key, everything else is replaced. A mapping whose `type` differs
    replaces the other whole, because the keys of another source kind mean nothing to it."""
    merged = dict(base)
    for key, value in over.items():
        old = merged.get(key)
        if isinstance(old, dict) and isinstance(value, dict) and _same_kind(old, value):
            merged[key] = merge_trees(old, value)
        else:
            merged[key] = value
    return merged


def _same_kind(old: Tree, new: Mapping[str, Any]) -> bool:
    return "type" not in new or new["type"] == old.get("type")


def apply_override(tree: Tree, override: str) -> None:
    """Set the key of a `key.path=value` text in place. Raises ConfigError when it is none, or its value no YAML."""
    key, separator, text = override.partition("=")
    if not separator or not key.strip():
        raise ConfigError(f"override {shown_override(override)!r} must read key.path=value")
    *parents, last = parts = key.strip().split(".")
    if not all(parts):
        raise ConfigError(f"override {shown_override(override)!r}: a name is missing beside a dot of the key")
    node = tree
    for part in parents:
        section = {} if node.get(part) is None else node[part]
        if not isinstance(section, dict):
            raise ConfigError(f"override {shown_override(override)!r}: {part!r} is a value, not a section")
        node[part] = dict(section)  # another key may be an alias of this section, which stays as it is
        node = node[part]
    try:
        node[last] = parse_value(text)
    except NotYaml as error:
        raise ConfigError(f"override {shown_override(override)!r}: the value is not valid YAML: {error}") from None


def shown_override(override: str) -> str:
    """The override as a message or a file may repeat it. Its value may name a secret as well as its key: a mapping."""
    key, separator, _ = override.partition("=")
    if names_a_secret(override):
        return f"{key}={HIDDEN}" if separator else HIDDEN
    return redact(override)


def parse_value(text: str) -> Any:
    """A YAML scalar or flow value. YAML 1.1 reads 1e-6 as text, so numbers are tried first. Raises NotYaml."""
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        return parse_yaml(text)


def _explain(problem: Mapping[str, Any]) -> str:
    keys, section = resolve_location(problem["loc"])
    key = ".".join(keys)
    if problem["type"] == "extra_forbidden":
        return f"{key}: unknown key{_suggestion(keys[-1], section)}"
    if problem["type"] == SECRET_ERROR:
        return f"{key}: {problem['msg']}"
    return f"{key}: {problem['msg']}{_got(problem, keys)}" if keys else str(problem["msg"])


def _got(problem: Mapping[str, Any], keys: Sequence[str]) -> str:
    """The refused value, for a person to find it by. Of a missing key pydantic has the whole section around it."""
    value = problem["input"]
    if problem["type"] == "missing" or isinstance(value, Mapping | list | tuple | set):
        return ""
    return f" (got {without_secrets(value, '.'.join(keys))!r})"


def _suggestion(key: str, section: type[BaseModel]) -> str:
    names = list(section.model_fields)
    close = difflib.get_close_matches(key, names, n=1, cutoff=0.6)
    return f"; did you mean `{close[0]}`?" if close else f"; valid keys here: {', '.join(names)}"


def resolve_location(location: Sequence[str | int]) -> tuple[list[str], type[BaseModel]]:
    """The keys a user wrote to get to a place, and the section that holds the last one.

    pydantic puts a union's chosen tag into the location ("data", "train", "counting", "size"), which is no key.
    """
    keys: list[str] = []
    section: type[BaseModel] = RunConfig
    candidates: list[type[BaseModel]] = [RunConfig]
    in_mapping = False
    for part in map(str, location):
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
    return keys, section


def _tags_of(section: type[BaseModel]) -> tuple[Any, ...]:
    """The values of a union member's `type` key."""
    field = section.model_fields.get("type")
    return getattr(field.annotation, "__args__", ()) if field else ()


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for argument in getattr(annotation, "__args__", ()) for model in _models_in(argument)]


def dump_config(config: RunConfig) -> str:
    """The resolved config as YAML, every default written out; `load_config` of it gives an equal config."""
    return yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False, width=100)


def digest_of(value: object) -> str:
    """The first 12 hexadecimal digits of the SHA-256 of a value's canonical JSON; pydantic models are dumped first."""
    plain = value.model_dump(mode="json") if isinstance(value, BaseModel) else value
    text = json.dumps(plain, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:12]
