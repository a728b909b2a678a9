"""All families: the `FAMILY` of every module of this package that has one."""

from collections.abc import Iterator, Mapping
from importlib import import_module
from importlib.abc import InspectLoader
from importlib.util import find_spec
from pkgutil import iter_modules
from typing import Any, Final

import rl_core.families
from rl_core.families.family import GATED_DELTA_RULE, Family
from rl_core.families.own import WrongFamily, current_family
from rl_core.families.refused import REASONS
from rl_core.families.vision import Vision
from rl_core.wording import shortened


def _families() -> Iterator[Family]:
    """By the code of the modules, of which those that families share are not run: some load torch."""
    package = rl_core.families
    for found in iter_modules(package.__path__, prefix=f"{package.__name__}."):
        spec = find_spec(found.name)
        assert spec is not None and isinstance(spec.loader, InspectLoader)
        code = spec.loader.get_code(found.name)
        if code is not None and "FAMILY" in code.co_names:
            yield import_module(found.name).FAMILY


FAMILIES: Final[Mapping[str, Family]] = {family.name: family for family in _families()}
"""[name] -> family."""

_BY_TYPE: Final = {family.model_type: family for family in FAMILIES.values()}

PUBLISHED: Final = {name: fields for family in FAMILIES.values() for name, fields in family.published.items()}
"""[name on the hub] -> what its config.json says of its layers, for plans that wait for no download."""

_OTHER_SENSES: Final = frozenset({"vision_config", "audio_config"})
"""Sections of the config.json of models that take more than text."""

_GATED_DELTA_RULE: Final = ("qwen3_5_text", "qwen3_5_moe_text", "olmo_hybrid")
"""Text models without a file, of whose layers some carry a state."""


def _by_type() -> Mapping[str, Family]:
    own = current_family()
    return _BY_TYPE if own is None else {**_BY_TYPE, own.family.model_type: own.family}


def _visions() -> list[Vision]:
    return [family.vision for family in _by_type().values() if family.vision is not None]


def vision_modules() -> str:
    """A regular expression of the whole names of all modules of a vision tower, and of those that join it to the
    language model, in every family."""
    seeing = "|".join(sorted({place for vision in _visions() for place in vision.places}))
    return rf"(.*\.)?({seeing})(\..*)?"


def find_family(fields: Mapping[str, Any]) -> Family | None:
    """The family of a config.json with these fields that has a file here or is the config's own; None where none
    has."""
    return _by_type().get(f"{fields.get('model_type')}")


def vision_of(model_type: str) -> Vision | None:
    """How the models of this `model_type` see; None where they do not, or it is none of a family."""
    family = _by_type().get(model_type)
    return None if family is None else family.vision


def reserved_tokens(fields: Mapping[str, Any]) -> tuple[str, ...]:
    """Tokens that stand for images and videos, by a config.json; those of all families where it names none of them."""
    family = find_family(fields)
    if family is not None:
        return family.reserved_tokens
    return tuple(dict.fromkeys(token for vision in _visions() for token in vision.special_tokens))


def vision_token_ids(fields: Mapping[str, Any]) -> dict[str, int]:
    """[field] -> id of a token that stands for images and videos, or around them, by a config.json."""
    family = find_family(fields)
    visions = _visions() if family is None else [family.vision]
    names = [name for vision in visions if vision is not None for name in vision.id_tokens]
    return {name: fields[name] for name in names if fields.get(name) is not None}


def family_of(fields: Mapping[str, Any]) -> Family:
    """The family of a config.json with these fields: the own one of the process's config, or one of Sightline; a text
    model of transformers without a file here is all generic path. Raises ValueError where Sightline does not train it,
    and WrongFamily where the own one is of other models."""
    model_type = f"{fields.get('model_type')}"
    own, by_type = current_family(), _by_type()
    if own is not None and own.family.model_type != model_type:
        said = shortened(repr(model_type))
        raise WrongFamily(f"{own.written} is of architecture {own.family.model_type!r}, and the model's is {said}")
    if model_type in by_type:
        return by_type[model_type]
    if model_type in REASONS:
        raise ValueError(f"architecture {model_type!r} is not trained: {REASONS[model_type]}")
    if not _is_known_to_transformers(model_type):
        raise ValueError(f"architecture {shortened(repr(model_type))} is none of {', '.join(_BY_TYPE)}")
    if others := sorted(fields.keys() & _OTHER_SENSES):
        raise ValueError(
            f"architecture {model_type!r} has a {others[0]}, and no family here says how it sees: the families that do "
            f"are {', '.join(name for name, family in _BY_TYPE.items() if family.vision is not None)}"
        )
    if model_type in _GATED_DELTA_RULE:
        return Family(name=model_type, model_type=model_type, carries_state=True, engine=GATED_DELTA_RULE)
    return Family(name=model_type, model_type=model_type)


def _is_known_to_transformers(model_type: str) -> bool:
    # Imported here, because it takes a second and families of this package do not need it.
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

    return model_type in CONFIG_MAPPING_NAMES
