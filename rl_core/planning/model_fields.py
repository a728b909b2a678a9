"""The fields of a config.json that is not here: of published checkpoints, and of tiny random models.

A plan waits for no download, so it knows some published models beforehand by the fields that decide their layers; a
test compares the parameters that come out with the published totals. Those of tiny models it knows before there is a
tokenizer; `rl_core/models/tiny.py` adds the token ids and writes the file.
"""

from collections.abc import Mapping
from typing import Any, Final

from rl_core.config.model import Family, TinyModel


def _published(
    model_type: str,
    hidden_size: int,
    intermediate_size: int,
    layers: int,
    heads: int,
    key_value_heads: int,
    *,
    vocab_size: int = 152_064,
    positions: int = 128_000,
    tied: bool = False,
    **others: Any,
) -> dict[str, Any]:
    return {
        "model_type": model_type,
        "hidden_size": hidden_size,
        "intermediate_size": intermediate_size,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": key_value_heads,
        "vocab_size": vocab_size,
        "max_position_embeddings": positions,
        "tie_word_embeddings": tied,
        **others,
    }


def _qwen2_5_vl(hidden_size: int, *sizes: int, vision_intermediate_size: int = 3456, **others: Any) -> dict[str, Any]:
    vision = {"depth": 32, "hidden_size": 1280, "patch_size": 14}
    vision |= {"intermediate_size": vision_intermediate_size, "out_hidden_size": hidden_size}
    return _published("qwen2_5_vl", hidden_size, *sizes, vision_config=vision, **others)


KNOWN_MODELS: Final[Mapping[str, Mapping[str, Any]]] = {
    "Qwen/Qwen2.5-VL-3B-Instruct": _qwen2_5_vl(
        2048, 11_008, 36, 16, 2, vision_intermediate_size=3420, vocab_size=151_936, tied=True
    ),
    "Qwen/Qwen2.5-VL-7B-Instruct": _qwen2_5_vl(3584, 18_944, 28, 28, 4, vision_intermediate_size=3420),
    "Qwen/Qwen2.5-VL-32B-Instruct": _qwen2_5_vl(5120, 27_648, 64, 40, 8),
    "Qwen/Qwen2.5-VL-72B-Instruct": _qwen2_5_vl(8192, 29_568, 80, 64, 8),
    "Qwen/Qwen2.5-7B-Instruct": _published("qwen2", 3584, 18_944, 28, 28, 4, positions=32_768),
    "Qwen/Qwen2.5-1.5B-Instruct": _published(
        "qwen2", 1536, 8960, 28, 12, 2, vocab_size=151_936, positions=32_768, tied=True
    ),
    "Qwen/Qwen3-VL-4B-Instruct": {
        "model_type": "qwen3_vl",
        "tie_word_embeddings": True,
        "text_config": {
            "hidden_size": 2560,
            "intermediate_size": 9728,
            "num_hidden_layers": 36,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "head_dim": 128,
            "vocab_size": 151_936,
            "max_position_embeddings": 262_144,
        },
        "vision_config": {
            "depth": 24,
            "hidden_size": 1024,
            "intermediate_size": 4096,
            "out_hidden_size": 2560,
            "patch_size": 16,
            "num_position_embeddings": 2304,
            "deepstack_visual_indexes": (5, 11, 17),
        },
    },
}
"""[name on the hub] -> what its config.json says of its layers."""

MAX_POSITIONS: Final = 32768
"""Longest sequence of a tiny model, in tokens."""

_MODEL_TYPES: Final = {"qwen2_5": "qwen2"}
"""Families that transformers has under another name."""
_TIED: Final[frozenset[Family]] = frozenset({"qwen2_vl", "qwen3_vl", "qwen2_5"})
"""Small embeddings are tied or not as in the family's published models, so that both cases are covered."""


def tiny_fields(source: TinyModel, *, vocab_size: int) -> dict[str, Any]:
    """Every field of the config.json that decides the model's layers: all of it but token ids and number format."""
    text = {
        "vocab_size": vocab_size,
        "hidden_size": source.hidden_size,
        "intermediate_size": source.intermediate_size,
        "num_hidden_layers": source.num_layers,
        "num_attention_heads": source.num_heads,
        "num_key_value_heads": source.num_key_value_heads,
        "max_position_embeddings": MAX_POSITIONS,
        "rms_norm_eps": 1e-6,
    }
    fields = {
        "model_type": _MODEL_TYPES.get(source.family, source.family),
        "tie_word_embeddings": source.family in _TIED,
    }
    if not source.family.endswith("_vl"):
        return fields | text
    head_size = source.hidden_size // source.num_heads
    text |= mrope_fields(source.family, head_size)
    if source.family == "qwen3_vl":
        text["head_dim"] = head_size
    return fields | {"text_config": text, "vision_config": _vision_fields(source)}


def vision_patch_size(family: str) -> int:
    """Side of a vision patch in pixels, as in the published models."""
    return 16 if family == "qwen3_vl" else 14


def _vision_fields(source: TinyModel) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "depth": source.vision_depth,
        "num_heads": source.num_heads,
        "patch_size": vision_patch_size(source.family),
    }
    if source.family == "qwen2_vl":
        return fields | {"embed_dim": source.vision_hidden_size, "hidden_size": source.hidden_size, "mlp_ratio": 2}
    fields |= {
        "hidden_size": source.vision_hidden_size,
        "intermediate_size": 2 * source.vision_hidden_size,
        "out_hidden_size": source.hidden_size,
    }
    if source.family == "qwen2_5_vl":
        # Windowed and full attention alternate; the last block is full, as in the published models.
        return fields | {"fullatt_block_indexes": list(range(source.vision_depth - 1, -1, -2))[::-1]}
    # Features of these vision blocks are added to the first layers of the language model (DeepStack).
    deep_stack = range(min(source.vision_depth - 1, source.num_layers, 3))
    return fields | {"num_position_embeddings": 64, "deepstack_visual_indexes": list(deep_stack)}


def mrope_fields(family: str, head_size: int) -> dict[str, Any]:
    """How many rotary frequencies of a head are for time, height and width, as fields of a config.json."""
    half = head_size // 2
    if family == "qwen3_vl":  # a third each, in turn
        third = half // 3
        return _rope(mrope_section=[half - 2 * third, third, third], mrope_interleaved=True)
    spatial = half * 3 // 8  # the published proportion, 16 : 24 : 24
    return _rope(mrope_section=[half - 2 * spatial, spatial, spatial])


def _rope(**mrope: Any) -> dict[str, Any]:
    return {"rope_parameters": {"rope_type": "default", "rope_theta": 1e6, **mrope}}
