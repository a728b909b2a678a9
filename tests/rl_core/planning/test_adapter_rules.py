"""A plan takes the layers of `model.lora` as peft does, and does not wait for the end of an endless pattern."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoModelForImageTextToText, PreTrainedModel

from rl_core.config.model import Family, LoraConfig, TinyModel
from rl_core.config.run import RunConfig
from rl_core.models.lora import attach_lora
from rl_core.models.tiny import VISION_FAMILIES, tiny_config
from rl_core.models.tiny_tokenizer import train_tokenizer
from rl_core.planning import adapter_rules
from rl_core.planning.adapter_rules import adapter_problems, ends_soon
from rl_core.planning.model_sizes import ModelSizes, model_sizes
from rl_core.planning.preflight import check_config

ENDLESS = "(([a-z_.0-9]+)+)+X"
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


@pytest.mark.parametrize(
    ("lora", "what"),
    [
        ({}, None),
        ({"rank": 320}, None),
        ({"rank": 513}, "rank 512 at most"),
        ({"exclude_modules": None}, "no adapters in a vision tower"),
        ({"exclude_modules": None, "generator_weights": "merged", "rank": 513}, None),
    ],
)
def test_a_plan_knows_what_vllm_has_no_adapters_for(lora: dict[str, Any], what: str | None) -> None:
    _, sizes = tiny("qwen2_5_vl")
    found = [*adapter_problems(LoraConfig(**{"rank": 1, "generator_weights": "separate"} | lora), sizes)]
    assert [what in problem.what for problem in found] == ([True] if what else [])


def test_what_is_compared_within_seconds_ends_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adapter_rules, "SECONDS", 60.0)
    assert ends_soon(r".*mlp\.\w+_proj", frozenset(f"layers.{number}.mlp.up_proj" for number in range(1000)))


@pytest.mark.parametrize(
    ("lora", "key"),
    [
        (f'{{target_modules: "{ENDLESS}"}}', "model.lora.target_modules"),
        (f'{{exclude_modules: "{ENDLESS}"}}', "model.lora.exclude_modules"),
    ],
)
@pytest.mark.parametrize("model", ["{type: tiny}", "{type: pretrained, path: nobody/knows-this-model}"])
def test_an_endless_pattern_is_the_one_problem_of_a_model(
    configure: Callable[..., RunConfig], monkeypatch: pytest.MonkeyPatch, lora: str, key: str, model: str
) -> None:
    monkeypatch.setattr(adapter_rules, "SECONDS", 0.5)
    (problem,) = check_config(configure(f"model.source={model}", f"model.lora={lora}"))
    assert problem.where == key and problem.fatal
    assert "does not end within" in problem.what
