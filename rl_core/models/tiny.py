"""Tiny random models of real families, written as complete Hugging Face folders without any download. They differ from
the published models in size only, so they run the same code of transformers and vLLM."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from transformers import (
    AutoConfig,
    GenerationConfig,
    PreTrainedConfig,
    PreTrainedModel,
    Qwen2Tokenizer,
)

from rl_core.config.model import TinyModel
from rl_core.families.family import Family
from rl_core.families.registry import FAMILIES, vision_of
from rl_core.models.loading import model_class
from rl_core.models.named_weights import save_as_published
from rl_core.models.tiny_tokenizer import train_tokenizer
from rl_core.randomness import keyed_seed

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
    family = FAMILIES[source.family]
    tokenizer = train_tokenizer(corpus, family=family, max_vocab_size=source.max_vocab_size)
    model = _random_model(tiny_config(source, tokenizer), seed=seed, dtype=getattr(torch, dtype))
    model.generation_config = GenerationConfig(
        eos_token_id=[tokenizer.eos_token_id],
        pad_token_id=tokenizer.pad_token_id,
        do_sample=True,
    )
    folder.mkdir(parents=True, exist_ok=True)
    save_as_published(model, folder)
    save_processor(family, tokenizer, folder)


def save_processor(family: Family, tokenizer: Qwen2Tokenizer, folder: Path) -> None:
    """Write the processor of a vision-language family, or the tokenizer."""
    if family.vision is None:
        tokenizer.save_pretrained(folder)
    else:
        family.vision.tiny_processor(tokenizer).save_pretrained(folder)


def tiny_config(source: TinyModel, tokenizer: Qwen2Tokenizer) -> PreTrainedConfig:
    """The configuration of a model whose sizes fit together."""
    vocab_size = -(-len(tokenizer) // _VOCABULARY_MULTIPLE) * _VOCABULARY_MULTIPLE
    family = FAMILIES[source.family]
    fields = family.tiny_fields(source, vocab_size=vocab_size)
    fields.get("text_config", fields).update(bos_token_id=None, eos_token_id=tokenizer.eos_token_id)
    fields |= named_token_ids(family, tokenizer)
    config: PreTrainedConfig = AutoConfig.for_model(**fields)
    return config


def named_token_ids(family: Family, tokenizer: Qwen2Tokenizer) -> dict[str, Any]:
    """The fields of a config.json that name the ids of tokens that stand for images and videos."""
    tokens = {} if family.vision is None else family.vision.id_tokens
    return {name: tokenizer.convert_tokens_to_ids(token) for name, token in tokens.items()}


def _random_model(config: PreTrainedConfig, *, seed: int, dtype: torch.dtype) -> PreTrainedModel:
    """A model with transformers' own initialisation. The random state of the process does not change."""
    factory = model_class(config)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(keyed_seed(seed, "initialise", config.model_type))
        # Initialised in float32 and then rounded, so that every number format starts from the same model.
        model: PreTrainedModel = factory.from_config(config, dtype=torch.float32)
        if (vision := vision_of(config.model_type)) is not None:
            vision.begin(model)
    torch.nn.Module.to(model, dtype)
    return model
