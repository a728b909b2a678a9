"""Tiny random models of real families, written as complete Hugging Face folders without any download. They differ from
the published models in size only, so they run the same code of transformers and vLLM."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    GenerationConfig,
    PreTrainedConfig,
    PreTrainedModel,
    ProcessorMixin,
    Qwen2_5_VLProcessor,
    Qwen2Tokenizer,
    Qwen2VLImageProcessor,
    Qwen2VLProcessor,
    Qwen2VLVideoProcessor,
    Qwen3VLProcessor,
    Qwen3VLVideoProcessor,
)

from rl_core.config.model import TinyModel
from rl_core.models.tiny_tokenizer import CHAT_TEMPLATE, train_tokenizer
from rl_core.planning.model_fields import tiny_fields, vision_patch_size
from rl_core.planning.model_tokens import IMAGE_TOKEN, VIDEO_TOKEN, VISION_END_TOKEN, VISION_START_TOKEN
from rl_core.randomness import keyed_seed

_PROCESSORS: dict[
    str,
    tuple[type[ProcessorMixin], type[Qwen2VLVideoProcessor | Qwen3VLVideoProcessor]],
] = {
    "qwen2_vl": (Qwen2VLProcessor, Qwen2VLVideoProcessor),
    "qwen2_5_vl": (Qwen2_5_VLProcessor, Qwen2VLVideoProcessor),
    "qwen3_vl": (Qwen3VLProcessor, Qwen3VLVideoProcessor),
}

VISION_FAMILIES = frozenset(_PROCESSORS)

# As in published models, the embedding is padded: ids without a token exist, and must be banned from sampling.
_VOCABULARY_MULTIPLE = 16


def build_tiny_model(
    source: TinyModel,
    folder: Path,
    *,
    corpus: Iterable[str],
    seed: int,
    dtype: str = "float32",
) -> None:
    """Write a random model of `source.family` as a Hugging Face folder: configs, weights, tokenizer with chat template
    and, for the vision-language families, the processor. Equal arguments give equal files, bit by bit. Raises
    ValueError if the sizes of `source` do not fit together."""
    with_vision = source.family in VISION_FAMILIES
    tokenizer = train_tokenizer(corpus, max_vocab_size=source.max_vocab_size, with_vision=with_vision)
    model = _random_model(tiny_config(source, tokenizer), seed=seed, dtype=getattr(torch, dtype))
    model.generation_config = GenerationConfig(
        eos_token_id=[tokenizer.eos_token_id],
        pad_token_id=tokenizer.pad_token_id,
        do_sample=True,
    )
    folder.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(folder)
    if with_vision:
        family_processor(source.family, tokenizer).save_pretrained(folder)
    else:
        tokenizer.save_pretrained(folder)


def tiny_config(source: TinyModel, tokenizer: Qwen2Tokenizer) -> PreTrainedConfig:
    """The configuration of a model whose sizes fit together."""
    vocab_size = -(-len(tokenizer) // _VOCABULARY_MULTIPLE) * _VOCABULARY_MULTIPLE
    fields = tiny_fields(source, vocab_size=vocab_size)
    text_ids = {"bos_token_id": None, "eos_token_id": tokenizer.eos_token_id}
    if source.family in VISION_FAMILIES:
        fields["text_config"] |= text_ids
        fields |= vision_token_ids(tokenizer)
    else:
        fields |= text_ids
    config: PreTrainedConfig = AutoConfig.for_model(**fields)
    return config


def vision_token_ids(tokenizer: Qwen2Tokenizer) -> dict[str, Any]:
    """The fields of a config.json that name the ids of the vision tokens."""
    names = {
        "image_token_id": IMAGE_TOKEN,
        "video_token_id": VIDEO_TOKEN,
        "vision_start_token_id": VISION_START_TOKEN,
        "vision_end_token_id": VISION_END_TOKEN,
    }
    return {key: tokenizer.convert_tokens_to_ids(token) for key, token in names.items()}


def _random_model(config: PreTrainedConfig, *, seed: int, dtype: torch.dtype) -> PreTrainedModel:
    """A model with transformers' own initialisation. The random state of the process does not change."""
    factory = AutoModelForImageTextToText if config.model_type in VISION_FAMILIES else AutoModelForCausalLM
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(keyed_seed(seed, "initialise", config.model_type))
        # Initialised in float32 and then rounded, so that every number format starts from the same model.
        model: PreTrainedModel = factory.from_config(config, dtype=torch.float32)
    torch.nn.Module.to(model, dtype)
    return model


def family_processor(family: str, tokenizer: Qwen2Tokenizer) -> ProcessorMixin:
    """The processor of a vision-language family: 9 tokens for an 84 x 84 image."""
    patch_size = vision_patch_size(family)
    processor_class, video_class = _PROCESSORS[family]
    return processor_class(
        image_processor=Qwen2VLImageProcessor(patch_size=patch_size),
        tokenizer=tokenizer,
        video_processor=video_class(patch_size=patch_size),
        chat_template=CHAT_TEMPLATE,
    )
