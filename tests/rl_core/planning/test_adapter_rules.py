"""A plan takes the layers of `model.lora` as peft does."""

from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoModelForImageTextToText, PreTrainedModel

from rl_core.config.model import Family, LoraConfig, TinyModel
from rl_core.models.lora import attach_lora
from rl_core.models.tiny_config import VISION_FAMILIES, tiny_config
from rl_core.models.tiny_tokenizer import train_tokenizer
from rl_core.planning.adapter_rules import adapter_problems
from rl_core.planning.model_sizes import ModelSizes, model_sizes

TOKENIZER = train_tokenizer(["How many? 3"] * 4, max_vocab_size=300, with_vision=True)


def without_memory(source: TinyModel) -> PreTrainedModel:
    factory = AutoModelForImageTextToText if source.family in VISION_FAMILIES else AutoModelForCausalLM
    with torch.device("meta"):
        return factory.from_config(tiny_config(source, TOKENIZER))


def tiny(family: Family) -> tuple[TinyModel, ModelSizes]:
    source = TinyModel(type="tiny", family=family, num_layers=2, vision_depth=3)
    sizes = model_sizes(source)
    assert sizes is not None
    return source, sizes


@pytest.mark.parametrize(
    "lora",
    [
        {},
        {"exclude_modules": None},
        {"exclude_modules": ".*"},
        {"target_modules": ["q_proj", "v_proj"]},
        {"target_modules": ["qkv"], "exclude_modules": None},
        {"target_modules": ["query"], "exclude_modules": None},
        {"target_modules": [], "exclude_modules": None},
        {"target_modules": ["lm_head"]},
        {"target_modules": ["q_proj", "embed_tokens"]},
        {"target_modules": ["norm"]},
        {"target_modules": ["mlp"]},
        {"target_modules": ["attn.proj"], "exclude_modules": None},
        {"target_modules": r".*mlp\.\w+_proj", "exclude_modules": None},
        {"target_modules": ".*", "exclude_modules": None},
    ],
)
@pytest.mark.parametrize("family", ["qwen2_5_vl", "llama"])
def test_a_plan_refuses_what_the_worker_would(family: Family, lora: dict[str, Any]) -> None:
    source, sizes = tiny(family)
    config = LoraConfig(rank=1, **lora)
    if list(adapter_problems(config, sizes)):
        with pytest.raises(ValueError, match=r"model\.lora\.target_modules"):
            attach_lora(without_memory(source), config, run_seed=1)
    else:
        attach_lora(without_memory(source), config, run_seed=1)
