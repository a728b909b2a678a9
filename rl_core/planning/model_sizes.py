"""How large a model is, from its config.json alone: parameters, and what a token of KV cache costs.

The counts are exact for the families below; tests compare them with the real modules.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from huggingface_hub import try_to_load_from_cache

from rl_core.config.model import ModelSource, TinyModel
from rl_core.planning.known_models import KNOWN_MODELS
from rl_core.planning.tiny_fields import tiny_fields

Fields = Mapping[str, Any]

KNOWN_TYPES = ("llama", "qwen2", "qwen3", "qwen2_vl", "qwen2_5_vl", "qwen3_vl")


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelSizes:
    """The sizes that memory and disk depend on.

    Attributes:
        family: The `model_type`.
        parameters: All of them; a tied output head counts once.
        num_layers: Layers of the language model.
        hidden_size: Its width.
        intermediate_size: Width of its feed-forward layers.
        head_size: Width of an attention head.
        query_size: Attention heads x head size.
        key_value_size: Key/value heads x head size.
        vocab_size: Rows of the embedding.
        max_positions: Longest sequence the model was made for, in tokens.
        vision_parameters: Those of the vision tower and the layers that join it to the text; 0 for a text model.
        vision_depth: Blocks of the vision tower.
        deep_stack: Blocks of it that also feed the first layers of the language model.
    """

    family: str
    parameters: int
    num_layers: int
    hidden_size: int
    intermediate_size: int
    head_size: int
    query_size: int
    key_value_size: int
    vocab_size: int
    max_positions: int
    vision_parameters: int = 0
    vision_depth: int = 0
    deep_stack: int = 0


def model_sizes(source: ModelSource) -> ModelSizes | None:
    """Sizes of a configured model; None for a hub checkpoint that was never downloaded and is not known beforehand.

    Raises:
        ValueError: the folder has no config.json, or it names an architecture that Sightline does not train.
    """
    if isinstance(source, TinyModel):
        return sizes_of_config(tiny_fields(source))
    folder = Path(source.path)
    if folder.is_dir():
        return read_sizes(folder / "config.json")
    if folder.is_absolute():
        raise ValueError(f"model.source.path: there is no folder {folder}")
    cached = try_to_load_from_cache(source.path, "config.json", revision=source.revision)
    if isinstance(cached, str):
        return read_sizes(Path(cached))
    known = KNOWN_MODELS.get(source.path)
    return None if known is None else sizes_of_config(known)


def read_sizes(config_json: Path) -> ModelSizes:
    """Sizes of the checkpoint that a config.json belongs to. Raises ValueError as model_sizes does."""
    if not config_json.is_file():
        raise ValueError(f"model.source.path: {config_json.parent} has no config.json, so it is no checkpoint")
    return sizes_of_config(json.loads(config_json.read_text()))


def sizes_of_config(fields: Fields) -> ModelSizes:
    """Sizes from the fields of a config.json. Published VL checkpoints have the language model's at the top level,
    newer ones in `text_config`."""
    family = fields.get("model_type")
    if family not in KNOWN_TYPES:
        raise ValueError(f"model.source: architecture {family!r} is none of {', '.join(KNOWN_TYPES)}")
    text: Fields = {**fields, **fields.get("text_config", {})}
    heads = text["num_attention_heads"]
    head_size = text.get("head_dim") or text["hidden_size"] // heads
    sizes = {
        "num_layers": text["num_hidden_layers"],
        "hidden_size": text["hidden_size"],
        "intermediate_size": text["intermediate_size"],
        "head_size": head_size,
        "query_size": heads * head_size,
        "key_value_size": (text.get("num_key_value_heads") or heads) * head_size,
        "vocab_size": text["vocab_size"],
        "max_positions": text["max_position_embeddings"],
    }
    tied = bool(fields.get("tie_word_embeddings", text.get("tie_word_embeddings", False)))
    text_parameters = _text_parameters(family, sizes, head_size=head_size, tied=tied)
    tower = fields.get("vision_config", {})
    vision = _VISION[family](tower, sizes["hidden_size"]) if tower else 0
    return ModelSizes(
        family=family,
        parameters=text_parameters + vision,
        vision_parameters=vision,
        vision_depth=tower.get("depth", 0),
        deep_stack=len(tower.get("deepstack_visual_indexes", ())),
        **sizes,
    )


def _text_parameters(family: str, sizes: Mapping[str, int], *, head_size: int, tied: bool) -> int:
    width, query, key_value = sizes["hidden_size"], sizes["query_size"], sizes["key_value_size"]
    attention = 2 * width * query + 2 * width * key_value
    if family in ("qwen2", "qwen2_vl", "qwen2_5_vl"):
        attention += query + 2 * key_value  # biases of the query, key and value projections
    if family in ("qwen3", "qwen3_vl"):
        attention += 2 * head_size  # norms of queries and keys
    layer = attention + 3 * width * sizes["intermediate_size"] + 2 * width
    embeddings = (1 if tied else 2) * sizes["vocab_size"] * width
    return embeddings + sizes["num_layers"] * layer + width


def _qwen2_vl_vision(vision: Fields, text_width: int) -> int:
    width, ratio = vision["embed_dim"], vision.get("mlp_ratio", 4)
    feed_forward = _linear(width, ratio * width) + _linear(ratio * width, width)
    block = 4 * width + _attention(width) + feed_forward
    return _tower(vision, width=width, block=block) + _merger(vision, width, text_width, norm=2 * width)


def _qwen2_5_vl_vision(vision: Fields, text_width: int) -> int:
    width, inner = vision["hidden_size"], vision["intermediate_size"]
    feed_forward = 2 * _linear(width, inner) + _linear(inner, width)
    block = 2 * width + _attention(width) + feed_forward
    return _tower(vision, width=width, block=block) + _merger(vision, width, text_width, norm=width)


def _qwen3_vl_vision(vision: Fields, text_width: int) -> int:
    width, inner = vision["hidden_size"], vision["intermediate_size"]
    block = 4 * width + _attention(width) + _linear(width, inner) + _linear(inner, width)
    embedding = width + vision["num_position_embeddings"] * width
    merged = vision.get("spatial_merge_size", 2) ** 2 * width
    deep_stack = len(vision["deepstack_visual_indexes"]) * _merger(vision, width, text_width, norm=2 * merged)
    merger = _merger(vision, width, text_width, norm=2 * width)
    return int(_tower(vision, width=width, block=block) + embedding + merger + deep_stack)


_VISION = {"qwen2_vl": _qwen2_vl_vision, "qwen2_5_vl": _qwen2_5_vl_vision, "qwen3_vl": _qwen3_vl_vision}


def _tower(vision: Fields, *, width: int, block: int) -> int:
    """Every block, and the convolution that makes a vector of a patch of pixels (without a bias)."""
    patch = vision.get("in_channels", 3) * vision.get("temporal_patch_size", 2) * vision["patch_size"] ** 2
    return int(patch * width + vision["depth"] * block)


def _attention(width: int) -> int:
    return _linear(width, 3 * width) + _linear(width, width)


def _merger(vision: Fields, width: int, text_width: int, *, norm: int) -> int:
    """The two layers that turn a square of patches into one token."""
    merged = vision.get("spatial_merge_size", 2) ** 2 * width
    return int(norm + _linear(merged, merged) + _linear(merged, text_width))


def _linear(inputs: int, outputs: int) -> int:
    return int(inputs * outputs + outputs)
