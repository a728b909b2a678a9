"""A checkpoint of any size with random weights, for measurements that ask for a model's sizes and not for what it has
learned. Its tokenizer, chat template and processor are those of the tiny models."""

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import torch
from safetensors.torch import save_file
from transformers import (
    AutoConfig,
    GenerationConfig,
    PreTrainedConfig,
    PreTrainedModel,
    Qwen2Tokenizer,
)

from rl_core.families.family import Family
from rl_core.families.registry import family_of
from rl_core.models.loading import model_class
from rl_core.models.named_weights import published
from rl_core.models.tiny import named_token_ids, save_processor
from rl_core.models.tiny_tokenizer import train_tokenizer

_SHARD_BYTES: Final = 4 << 30
_TRAINED_TOKENS: Final = 512
_STANDARD_DEVIATION: Final = 0.02
"""Of all matrices, as transformers initialises these families."""

_UNNAMED_SHARE: Final = 1 / 512
"""Rows of the embedding without a token: published models have 300 to 400 among 152,000."""


def write_random_checkpoint(
    fields: Mapping[str, Any], folder: Path, *, corpus: Iterable[str], dtype: torch.dtype, device: torch.device
) -> None:
    """Write a Hugging Face folder with the layers of a config.json that has these fields, and a tokenizer that is
    trained on `corpus`. Each weight is filled on the device and written before the next one, so that the model may be
    larger than either memory."""
    family = family_of(fields)
    config = AutoConfig.for_model(**_with_rope(family, fields))
    tokenizer = _tokenizer(config, corpus, family)
    _name_tokens(config, tokenizer, family)
    factory = model_class(config)
    with torch.device("meta"):
        model: PreTrainedModel = factory.from_config(config, dtype=dtype, trust_remote_code=False)
    model.config.architectures = [type(model).__name__]
    model.config.save_pretrained(folder)
    GenerationConfig(eos_token_id=[tokenizer.eos_token_id], pad_token_id=tokenizer.pad_token_id).save_pretrained(folder)
    save_processor(family, tokenizer, folder)
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(0)
        _write_weights(model, folder, device)
    if device.type == "cuda":
        torch.cuda.empty_cache()  # what is measured next in this process must not find it taken


def _with_rope(family: Family, fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """The fields with a vision-language family's rotary embedding, which published ones leave out here."""
    text = fields.get("text_config", fields)
    if family.vision is None or text.keys() & {"rope_parameters", "rope_scaling"}:
        return fields
    head_size = text.get("head_dim") or text["hidden_size"] // text["num_attention_heads"]
    rope = {name: value for name, value in family.tiny_text(head_size).items() if name == "rope_parameters"}
    return {**fields, "text_config": {**text, **rope}} if "text_config" in fields else {**fields, **rope}


def _tokenizer(config: PreTrainedConfig, corpus: Iterable[str], family: Family) -> Qwen2Tokenizer:
    vocab_size = config.get_text_config().vocab_size
    named = vocab_size - max(1, int(_UNNAMED_SHARE * vocab_size))
    return train_tokenizer(corpus, family=family, max_vocab_size=min(_TRAINED_TOKENS, named), size=named)


def _name_tokens(config: PreTrainedConfig, tokenizer: Qwen2Tokenizer, family: Family) -> None:
    for part in (config, config.get_text_config()):
        part.bos_token_id, part.pad_token_id = None, None
        part.eos_token_id = tokenizer.eos_token_id
    for name, token_id in named_token_ids(family, tokenizer).items():
        setattr(config, name, token_id)


def _write_weights(model: PreTrainedModel, folder: Path, device: torch.device) -> None:
    forms = published(model)
    places: dict[str, str] = {}
    for number, shard in enumerate(_shards(model)):
        name = f"model-{number:05}.safetensors"
        filled = {
            forms[key].name: _filled(key, like.mT if forms[key].is_transposed else like, device)
            for key, like in shard.items()
        }
        save_file(filled, folder / name, metadata={"format": "pt"})
        places |= dict.fromkeys(filled, name)
    total = sum(weight.nbytes for weight in model.parameters())
    index = {"metadata": {"total_size": total}, "weight_map": places}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def _shards(model: PreTrainedModel) -> Iterator[dict[str, torch.Tensor]]:
    """A tied weight comes once."""
    shard: dict[str, torch.Tensor] = {}
    for name, weight in model.named_parameters():
        shard[name] = weight
        if sum(one.nbytes for one in shard.values()) >= _SHARD_BYTES:
            yield shard
            shard = {}
    if shard:
        yield shard


def _filled(name: str, like: torch.Tensor, device: torch.device) -> torch.Tensor:
    """A matrix of normal numbers, a norm of ones, a bias of zeros; in the host's memory."""
    weight = torch.empty(like.shape, dtype=like.dtype, device=device)
    if weight.ndim > 1:
        return weight.normal_(std=_STANDARD_DEVIATION).cpu()
    return weight.fill_(0.0 if name.endswith("bias") else 1.0).cpu()
