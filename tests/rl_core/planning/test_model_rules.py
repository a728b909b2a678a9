"""A plan names what a model has not, cannot adapt and cannot divide."""

from dataclasses import replace

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoModelForImageTextToText, PreTrainedModel

from rl_core.config.model import FamilyName, LoraConfig, TinyModel
from rl_core.families.registry import FAMILIES
from rl_core.models.tiny import tiny_config
from rl_core.models.tiny_tokenizer import train_tokenizer
from rl_core.models.trained_part import attach_lora
from rl_core.planning.gpu import Gpu
from rl_core.planning.model_sizes import ModelSizes, model_sizes
from rl_core.planning.rules import adapter_problems, check_config, division_problems, model_problems
from tests.rl_core.planning.test_memory import SEVEN_BILLION

TOKENIZER = train_tokenizer(["How many? 3"] * 4, family=FAMILIES["qwen2_5_vl"], max_vocab_size=300)


def without_memory(source: TinyModel) -> PreTrainedModel:
    factory = AutoModelForImageTextToText if FAMILIES[source.family].vision is not None else AutoModelForCausalLM
    with torch.device("meta"):
        return factory.from_config(tiny_config(source, TOKENIZER))


def tiny(family: FamilyName) -> tuple[TinyModel, ModelSizes]:
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
        {"target_modules": [], "exclude_modules": None},
        {"target_modules": ["q_proj", "embed_tokens"]},
        {"target_modules": ["mlp"]},
        {"target_modules": ["attn.proj"], "exclude_modules": None},
        {"target_modules": r".*mlp\.\w+_proj", "exclude_modules": None},
        {"target_modules": ".*", "exclude_modules": None},
    ],
)
@pytest.mark.parametrize("family", ["qwen2_5_vl", "llama", "qwen3_moe"])
def test_a_plan_refuses_what_the_worker_would(family, lora):
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
def test_a_plan_knows_what_vllm_has_no_adapters_for(lora, what):
    _, sizes = tiny("qwen2_5_vl")
    found = [*adapter_problems(LoraConfig(**{"rank": 1, "generator_weights": "separate"} | lora), sizes)]
    assert [what in problem.what for problem in found] == ([True] if what else [])


def test_a_plan_knows_the_families_that_vllm_has_no_adapters_for():
    _, sizes = tiny("llava_onevision")
    (problem,) = adapter_problems(LoraConfig(rank=1, generator_weights="separate"), sizes)
    assert (problem.where, problem.fix) == ("model.lora.generator_weights", "set it to merged")
    assert not [*adapter_problems(LoraConfig(rank=1), sizes)]


def test_a_plan_knows_the_layers_of_a_family_that_vllm_has_no_adapters_for():
    _, sizes = tiny("glm4")
    (problem,) = adapter_problems(LoraConfig(rank=1, generator_weights="separate"), sizes)
    assert "model.layers.0.mlp.gate_up_proj" in problem.what and "exclude_modules to ['gate_up_proj']" in problem.fix
    others = LoraConfig(rank=1, generator_weights="separate", exclude_modules=("gate_up_proj",))
    assert not [*adapter_problems(others, sizes)]
    assert not [*adapter_problems(LoraConfig(rank=1), sizes)]


@pytest.mark.parametrize(("family", "positions"), [("phi3", 4096), ("ministral3", 2048), ("llama", 32768)])
def test_a_model_whose_rotation_changes_beyond_its_first_positions_is_planned_up_to_them(family, positions):
    _, sizes = tiny(family)
    assert sizes.max_positions == positions


@pytest.mark.parametrize(
    ("overrides", "where", "what"),
    [
        (
            ["model.lora={rank: 4}", "model.freeze_vision_tower=true"],
            "model.freeze_vision_tower",
            "freezes every weight",
        ),
        (["actor.optim.strategy=adamw_bf16"], "actor.optim.strategy", "model.dtype is float32"),
        (
            ["cold_start={steps: 1, optim: {strategy: adamw_bf16}}"],
            "cold_start.optim.strategy",
            "model.dtype is float32",
        ),
        (
            ["model.source.family=llama", "model.freeze_vision_tower=true"],
            "model.freeze_vision_tower",
            "no vision tower",
        ),
        (["model.lora={target_modules: [query]}"], "model.lora.target_modules", "no linear layer"),
        (["model.lora={target_modules: [lm_head]}"], "model.lora.target_modules", "matches lm_head: embeddings"),
        (["model.lora={target_modules: [q_proj, norm]}"], "model.lora.target_modules", "language_model.norm: emb"),
        (
            ["model.source.family=qwen3_moe", "model.lora={generator_weights: separate}"],
            "model.lora.generator_weights",
            "experts by Triton",
        ),
        (["model.attention=flash"], "model.attention", "no NVIDIA GPU"),
        (["model.source.num_heads=8"], "model.source.hidden_size", "attention heads of width 16"),
        (["model.source.hidden_size=48"], "model.source.hidden_size", "no multiple of 8 x num_heads (32)"),
        (["model.source.num_key_value_heads=3"], "model.source.num_key_value_heads", "do not share 3"),
        (["model.source.vision_hidden_size=24"], "model.source.vision_hidden_size", "no multiple of 4 x num_heads"),
        (["model.source.family=qwen3_5"], "model.dtype", "a CPU computes in bfloat16 alone"),
        (
            ["model.source.family=qwen3_5", "cluster={devices: 2, sequence_parallel_size: 2}"],
            "cluster.sequence_parallel_size",
            "carry a state from token to token",
        ),
    ],
)
def test_a_contradiction_is_named(configure, overrides, where, what):
    problems = [problem for problem in check_config(configure(*overrides)) if problem.fatal]
    assert where in [problem.where for problem in problems]
    assert any(what in problem.what for problem in problems if problem.where == where)


def test_a_number_format_that_vllm_has_not_on_a_cpu_is_there_on_a_gpu(configure):
    def found(*overrides, gpu):
        problems = check_config(configure("model.source.family=qwen3_5", *overrides), gpu=gpu)
        return [problem.fix for problem in problems if problem.where == "model.dtype"]

    assert found(gpu=None) == ["set it to bfloat16, or take a GPU"]
    assert found("model.dtype=bfloat16", gpu=None) == found(gpu=Gpu(memory_gib=80.0, is_elsewhere=True)) == []


def test_images_whose_tokens_see_each_other_need_an_attention_that_lets_them(configure, monkeypatch):
    def found(*overrides, gpu):
        problems = check_config(configure("model.source.family=gemma3", *overrides), gpu=gpu)
        return {problem.where: problem.fix for problem in problems if "see" in problem.what}

    card, half = Gpu(memory_gib=80.0, is_elsewhere=True), "model.dtype=bfloat16"
    assert found(gpu=None) == found("model.attention=sdpa", half, gpu=card) == {}
    assert found(half, gpu=card) == {"model.attention": "set it to sdpa"}
    shared = "cluster={devices: 2, sequence_parallel_size: 2}"
    assert found(shared, gpu=None) == {"cluster.sequence_parallel_size": "set it to 1"}
    monkeypatch.setenv("SIGHTLINE_CPU_ENGINE", "0")
    assert found(gpu=None) == {"SIGHTLINE_CPU_ENGINE=0 in the environment": "leave it out, or take a GPU"}


def test_heads_that_are_wider_than_the_kernels_need_another_attention(configure):
    def found(width, *overrides, on_gpu=True):
        sizes = replace(SEVEN_BILLION, kinds_of_heads=[(128, 4), (width, 2)])
        problems = model_problems(configure(*overrides), sizes, on_gpu=on_gpu)
        return [problem.fix for problem in problems if problem.where == "model.attention"]

    half = "model.dtype=bfloat16"
    assert found(512, half) == ["set it to sdpa"]
    assert found(256, half) == found(512, half, "model.attention=sdpa") == found(512, on_gpu=False) == []


def test_vllm_has_adapters_in_16_bits_only_on_a_gpu(configure):
    separate = "model.lora={rank: 4, generator_weights: separate}"

    def found(*overrides, gpu):
        problems = check_config(configure(*overrides), gpu=gpu)
        return any(problem.where == "model.lora.generator_weights" for problem in problems)

    card = Gpu(memory_gib=80.0, is_elsewhere=True)
    assert found(separate, gpu=card)
    assert not found(separate, gpu=None)
    assert not found(separate, "model.dtype=bfloat16", gpu=card)
    assert not found("model.lora={rank: 4}", gpu=card)


def test_a_sequence_beyond_the_models_positions_is_refused(configure):
    (problem,) = model_problems(configure("data.max_prompt_length=127990"), SEVEN_BILLION, on_gpu=True)
    assert problem.fix == "lower data.max_prompt_length or rollout.max_response_length by 6 in all"


@pytest.mark.parametrize(
    ("key", "changes", "size", "what"),
    [
        ("sequence_parallel_size", {}, 4, None),
        ("sequence_parallel_size", {}, 8, "28 attention heads cannot be shared equally by 8 ranks"),
        ("sequence_parallel_size", {"vision_heads": 16, "intermediate_size": 18_945}, 7, "neither of 4 key/value"),
        ("sequence_parallel_size", {"query_size": 4 * 128}, 4, None),
        ("tensor_parallel_size", {}, 4, None),
        ("tensor_parallel_size", {}, 8, "28 attention heads cannot be shared equally by 8 ranks"),
        ("tensor_parallel_size", {"vision_heads": 16}, 4, None),
        ("tensor_parallel_size", {"vision_heads": 16}, 7, "16 attention heads of the vision tower"),
        ("tensor_parallel_size", {"intermediate_size": 18_945}, 2, "feed-forward layers of width 18945"),
        ("tensor_parallel_size", {"kinds_of_heads": [(128, 3)]}, 2, "neither of 3 key/value heads and 2 ranks"),
        ("sequence_parallel_size", {"kinds_of_heads": [(64, 4), (128, 3)]}, 2, "neither of 3 key/value heads"),
    ],
)
def test_every_layer_is_divided(configure, key, changes, size, what):
    config = configure(f"cluster={{devices: {size}, {key}: {size}}}")
    found = [*division_problems(config, replace(SEVEN_BILLION, **changes))]
    assert [problem.where for problem in found] == [f"cluster.{key}"] * (what is not None)
    assert all(what is not None and what in problem.what for problem in found)


@pytest.mark.parametrize(
    ("key", "fitting"), [("sequence_parallel_size", "1, 2, 4, 28"), ("tensor_parallel_size", "1, 2, 4")]
)
def test_a_fix_names_sizes_that_work(configure, key, fitting):
    config = configure(f"cluster={{devices: 8, {key}: 8}}")
    (problem,) = division_problems(config, replace(SEVEN_BILLION, vision_heads=16))
    assert problem.fix == f"set it to one of {fitting}"
