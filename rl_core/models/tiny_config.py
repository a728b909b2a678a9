"""Hugging Face configurations of the tiny models, one function a family."""

from typing import Any

from transformers import (
    LlamaConfig,
    PreTrainedConfig,
    Qwen2_5_VLConfig,
    Qwen2Config,
    Qwen2Tokenizer,
    Qwen2VLConfig,
    Qwen3VLConfig,
)

from rl_core.config.model import Family, TinyModel
from rl_core.models.tiny_tokenizer import (
    IMAGE_TOKEN,
    MAX_POSITIONS,
    VIDEO_TOKEN,
    VISION_END_TOKEN,
    VISION_START_TOKEN,
)
from rl_core.planning.tiny_rules import tiny_size_problems

VISION_FAMILIES: frozenset[str] = frozenset({"qwen2_vl", "qwen2_5_vl", "qwen3_vl"})

# Published models pad their embedding too, so ids without a token exist and must be banned from sampling.
_VOCABULARY_MULTIPLE = 16


def vision_patch_size(family: Family) -> int:
    """Side of a vision patch in pixels, as in the published models."""
    return 16 if family == "qwen3_vl" else 14


def tiny_config(source: TinyModel, tokenizer: Qwen2Tokenizer) -> PreTrainedConfig:
    """The configuration of a tiny model.

    Small embeddings are tied or not as in the family's published models, so that both cases are covered.

    Raises:
        ValueError: Heads do not divide the widths, or leave a head size that rotary embeddings cannot split.
    """
    for problem in tiny_size_problems(source):
        raise ValueError(str(problem))
    match source.family:
        case "qwen2_vl":
            return _qwen2_vl(source, tokenizer)
        case "qwen2_5_vl":
            return _qwen2_5_vl(source, tokenizer)
        case "qwen3_vl":
            return _qwen3_vl(source, tokenizer)
        case "qwen2_5":
            return Qwen2Config(**_text(source, tokenizer), tie_word_embeddings=True)
        case "llama":
            return LlamaConfig(**_text(source, tokenizer), tie_word_embeddings=False)


def _qwen2_vl(source: TinyModel, tokenizer: Qwen2Tokenizer) -> PreTrainedConfig:
    vision = {
        "depth": source.vision_depth,
        "embed_dim": source.vision_hidden_size,
        "hidden_size": source.hidden_size,
        "mlp_ratio": 2,
        "num_heads": source.num_heads,
        "patch_size": vision_patch_size(source.family),
    }
    text = _text(source, tokenizer) | _rope(mrope_section=_contiguous_mrope(source))
    return Qwen2VLConfig(
        text_config=text,
        vision_config=vision,
        tie_word_embeddings=True,
        **_vision_token_ids(tokenizer),
    )


def _qwen2_5_vl(source: TinyModel, tokenizer: Qwen2Tokenizer) -> PreTrainedConfig:
    vision = {
        "depth": source.vision_depth,
        "hidden_size": source.vision_hidden_size,
        "intermediate_size": 2 * source.vision_hidden_size,
        "num_heads": source.num_heads,
        "patch_size": vision_patch_size(source.family),
        "out_hidden_size": source.hidden_size,
        # Windowed and full attention alternate; the last block is full, as in the published models.
        "fullatt_block_indexes": list(range(source.vision_depth - 1, -1, -2))[::-1],
    }
    text = _text(source, tokenizer) | _rope(mrope_section=_contiguous_mrope(source))
    return Qwen2_5_VLConfig(
        text_config=text,
        vision_config=vision,
        tie_word_embeddings=False,
        **_vision_token_ids(tokenizer),
    )


def _qwen3_vl(source: TinyModel, tokenizer: Qwen2Tokenizer) -> PreTrainedConfig:
    vision = {
        "depth": source.vision_depth,
        "hidden_size": source.vision_hidden_size,
        "intermediate_size": 2 * source.vision_hidden_size,
        "num_heads": source.num_heads,
        "patch_size": vision_patch_size(source.family),
        "out_hidden_size": source.hidden_size,
        "num_position_embeddings": 64,
        # Features of these vision blocks are added to the first layers of the language model (DeepStack).
        "deepstack_visual_indexes": list(range(min(source.vision_depth - 1, source.num_layers, 3))),
    }
    third = _head_size(source) // 6
    section = [_head_size(source) // 2 - 2 * third, third, third]
    text = (
        _text(source, tokenizer)
        | {"head_dim": _head_size(source)}
        | _rope(mrope_section=section, mrope_interleaved=True)
    )
    return Qwen3VLConfig(
        text_config=text,
        vision_config=vision,
        tie_word_embeddings=True,
        **_vision_token_ids(tokenizer),
    )


def _text(source: TinyModel, tokenizer: Qwen2Tokenizer) -> dict[str, Any]:
    """What the language models share."""
    return {
        "vocab_size": -(-len(tokenizer) // _VOCABULARY_MULTIPLE) * _VOCABULARY_MULTIPLE,
        "hidden_size": source.hidden_size,
        "intermediate_size": source.intermediate_size,
        "num_hidden_layers": source.num_layers,
        "num_attention_heads": source.num_heads,
        "num_key_value_heads": source.num_key_value_heads,
        "max_position_embeddings": MAX_POSITIONS,
        "rms_norm_eps": 1e-6,
        "bos_token_id": None,
        "eos_token_id": tokenizer.eos_token_id,
    }


def _rope(**mrope: Any) -> dict[str, Any]:
    return {"rope_parameters": {"rope_type": "default", "rope_theta": 1e6, **mrope}}


def _contiguous_mrope(source: TinyModel) -> list[int]:
    """Rotary frequencies for time, height and width in the published proportion 16 : 24 : 24."""
    half = _head_size(source) // 2
    spatial = half * 3 // 8
    return [half - 2 * spatial, spatial, spatial]


def _vision_token_ids(tokenizer: Qwen2Tokenizer) -> dict[str, Any]:
    names = {
        "image_token_id": IMAGE_TOKEN,
        "video_token_id": VIDEO_TOKEN,
        "vision_start_token_id": VISION_START_TOKEN,
        "vision_end_token_id": VISION_END_TOKEN,
    }
    return {key: tokenizer.convert_tokens_to_ids(token) for key, token in names.items()}


def _head_size(source: TinyModel) -> int:
    return source.hidden_size // source.num_heads
