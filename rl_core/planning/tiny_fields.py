"""What the config.json of a tiny random model will say, before there is one.

The models room writes the real file and needs transformers for it; a test holds the two together.
"""

from typing import Any

from rl_core.config.model import TinyModel

MAX_POSITIONS = 32768


def tiny_fields(source: TinyModel) -> dict[str, Any]:
    """The fields that decide a tiny model's size, with the largest vocabulary that its tokenizer may get."""
    fields: dict[str, Any] = {
        "model_type": "qwen2" if source.family == "qwen2_5" else source.family,
        "num_hidden_layers": source.num_layers,
        "hidden_size": source.hidden_size,
        "intermediate_size": source.intermediate_size,
        "num_attention_heads": source.num_heads,
        "num_key_value_heads": source.num_key_value_heads,
        "vocab_size": source.max_vocab_size,
        "max_position_embeddings": MAX_POSITIONS,
        "tie_word_embeddings": source.family in ("qwen2_vl", "qwen3_vl", "qwen2_5"),
    }
    if source.family.endswith("_vl"):
        fields["vision_config"] = _vision_fields(source)
    return fields


def _vision_fields(source: TinyModel) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "depth": source.vision_depth,
        "patch_size": 16 if source.family == "qwen3_vl" else 14,
    }
    if source.family == "qwen2_vl":
        return {**fields, "embed_dim": source.vision_hidden_size, "mlp_ratio": 2}
    fields |= {"hidden_size": source.vision_hidden_size, "intermediate_size": 2 * source.vision_hidden_size}
    if source.family == "qwen3_vl":
        deep_stack = range(min(source.vision_depth - 1, source.num_layers, 3))
        fields |= {"num_position_embeddings": 64, "deepstack_visual_indexes": list(deep_stack)}
    return fields
