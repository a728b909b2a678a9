"""How large a model is, from its config.json alone: parameters, layers, and what a token of KV cache costs."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from huggingface_hub import try_to_load_from_cache

from rl_core.config.model import ModelSource, TinyModel
from rl_core.planning.built_models import describe_model
from rl_core.planning.known_models import KNOWN_MODELS
from rl_core.planning.tiny_model import tiny_fields

Fields = Mapping[str, Any]

TRAINED_TYPES: Final = ("llama", "qwen2", "qwen3", "qwen2_vl", "qwen2_5_vl", "qwen3_vl")
"""Every `model_type` that Sightline trains."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelSizes:
    """The sizes that memory and disk depend on, and the names that LoRA chooses from.

    Attributes:
        family: The `model_type`.
        parameters: Parameters of the whole model; a tied output head counts once.
        vision_parameters: Parameters of the vision tower and of the layers that join it to the text; 0 for a text
            model.
        vision_blocks: Blocks of the vision tower; 0 for a text model.
        vision_heads: Attention heads of the vision tower; 0 for a text model.
        num_layers: Layers of the language model.
        hidden_size: Width of the language model.
        intermediate_size: Width of its feed-forward layers.
        head_size: Width of an attention head.
        query_size: Attention heads x head size.
        key_value_size: Key/value heads x head size.
        norms_queries: Whether the queries and keys of each head are normalised.
        vocab_size: Rows of the embedding.
        tied_head: Whether the output head is the embedding.
        max_positions: Longest sequence the model was made for, in tokens.
        linear_layers: Inputs plus outputs of each linear layer that can be adapted, by its full name in transformers.
        other_modules: The full names of everything else: embeddings, the output head, norms, and modules that hold
            others.
    """

    family: str
    parameters: int
    vision_parameters: int = 0
    vision_blocks: int = 0
    vision_heads: int = 0
    num_layers: int
    hidden_size: int
    intermediate_size: int
    head_size: int
    query_size: int
    key_value_size: int
    norms_queries: bool = False
    vocab_size: int
    tied_head: bool = False
    max_positions: int
    linear_layers: Mapping[str, int] = field(default_factory=dict)
    other_modules: frozenset[str] = frozenset()

    @property
    def heads(self) -> int:
        """Attention heads of a layer of the language model."""
        return self.query_size // self.head_size

    @property
    def key_value_heads(self) -> int:
        """Its key/value heads."""
        return self.key_value_size // self.head_size


def model_sizes(source: ModelSource) -> ModelSizes | None:
    """Sizes of a configured model. None for a checkpoint of the hub that was never downloaded and is not known
    beforehand, and for a model that cannot be built in time.

    Raises:
        ValueError: the folder has no config.json, the config.json names an architecture that Sightline does not train,
            or transformers cannot build a model of it.
    """
    fields = config_fields(source)
    return None if fields is None else sizes_of_config(fields)


def config_fields(source: ModelSource) -> Fields | None:
    """The fields of the config.json of a configured model, as far as they decide its layers. None for a checkpoint of
    the hub that was never downloaded and is not known beforehand.

    Raises:
        ValueError: there is no such folder, or it has no config.json.
    """
    if isinstance(source, TinyModel):
        return tiny_fields(source, vocab_size=source.max_vocab_size)
    folder = Path(source.path)
    if folder.is_dir():
        return _read_fields(folder / "config.json")
    if folder.is_absolute():
        raise ValueError(f"model.source.path: there is no folder {folder}")
    cached = try_to_load_from_cache(source.path, "config.json", revision=source.revision)
    return _read_fields(Path(cached)) if isinstance(cached, str) else KNOWN_MODELS.get(source.path)


def read_sizes(config_json: Path) -> ModelSizes | None:
    """Sizes of the checkpoint that a config.json belongs to; None where it cannot be built in time.

    Raises:
        ValueError: there is no such file, it names an architecture that Sightline does not train, or transformers
            cannot build a model of it.
    """
    return sizes_of_config(_read_fields(config_json))


def check_architecture(config_json: Path) -> None:
    """Raises ValueError where there is no such config.json, or it names an architecture that Sightline does not
    train."""
    _check_type(_read_fields(config_json))


def sizes_of_config(fields: Fields) -> ModelSizes | None:
    """Sizes from the fields of a config.json; None where the model cannot be built in time.

    Raises:
        ValueError: Sightline does not train the architecture, or transformers cannot build a model of these fields.
    """
    _check_type(fields)
    described = describe_model(fields)
    if described is None:
        return None
    return ModelSizes(**{**described, "other_modules": frozenset(described["other_modules"])})


def _read_fields(config_json: Path) -> Fields:
    if not config_json.is_file():
        raise ValueError(f"model.source.path: {config_json.parent} has no config.json, so it is no checkpoint")
    fields: Fields = json.loads(config_json.read_text())
    return fields


def _check_type(fields: Fields) -> None:
    family = fields.get("model_type")
    if family not in TRAINED_TYPES:
        raise ValueError(f"model.source: architecture {family!r} is none of {', '.join(TRAINED_TYPES)}")
