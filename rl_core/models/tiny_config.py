"""Hugging Face configurations of the tiny models."""

from typing import Any

from transformers import AutoConfig, PreTrainedConfig, Qwen2Tokenizer

from rl_core.config.model import TinyModel
from rl_core.models.tiny_tokenizer import IMAGE_TOKEN, VIDEO_TOKEN, VISION_END_TOKEN, VISION_START_TOKEN
from rl_core.planning.tiny_model import tiny_fields, tiny_size_problems

VISION_FAMILIES: frozenset[str] = frozenset({"qwen2_vl", "qwen2_5_vl", "qwen3_vl"})

# Published models pad their embedding too; tests need ids without a token, which must be banned from sampling.
_VOCABULARY_MULTIPLE = 16


def tiny_config(source: TinyModel, tokenizer: Qwen2Tokenizer) -> PreTrainedConfig:
    """The configuration of a tiny model.

    Raises:
        ValueError: the number of heads does not divide the width, or the head size does not fit rotary embeddings.
    """
    for problem in tiny_size_problems(source):
        raise ValueError(str(problem))
    vocab_size = -(-len(tokenizer) // _VOCABULARY_MULTIPLE) * _VOCABULARY_MULTIPLE
    fields = tiny_fields(source, vocab_size=vocab_size)
    text_ids = {"bos_token_id": None, "eos_token_id": tokenizer.eos_token_id}
    if source.family in VISION_FAMILIES:
        fields["text_config"] |= text_ids
        fields |= _vision_token_ids(tokenizer)
    else:
        fields |= text_ids
    config: PreTrainedConfig = AutoConfig.for_model(**fields)
    return config


def _vision_token_ids(tokenizer: Qwen2Tokenizer) -> dict[str, Any]:
    names = {
        "image_token_id": IMAGE_TOKEN,
        "video_token_id": VIDEO_TOKEN,
        "vision_start_token_id": VISION_START_TOKEN,
        "vision_end_token_id": VISION_END_TOKEN,
    }
    return {key: tokenizer.convert_tokens_to_ids(token) for key, token in names.items()}
