"""Adapters: they start as nothing, they alone are trained, and merged weights compute what they compute."""

from collections.abc import Callable, Iterator

import pytest
import torch
from transformers import AutoModelForCausalLM

from rl_core.config.model import LoraConfig
from rl_core.families.registry import FAMILIES as FAMILY_OF
from rl_core.families.registry import vision_of
from rl_core.models.loading import load_model, write_hf_folder
from rl_core.models.named_weights import named_hf_weights
from rl_core.models.packing import PackedTrees
from rl_core.models.policy import load_policy
from rl_core.models.trained_part import UnadaptedPolicy, adapters_off, attach_lora
from tests.rl_core.models.builders import FAMILIES, Bench, model_config, take_gradients, trained_parameters
from tests.rl_core.models.text_families import tiny_config

LAYERS = {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}
OF_A_STATE = {"in_proj_qkv", "in_proj_z", "in_proj_a", "in_proj_b", "out_proj"}


def layers_of(family: str) -> set[str]:
    return LAYERS | OF_A_STATE if FAMILY_OF[family].carries_state else LAYERS


def num_adapted(family: str) -> int:
    """Of two layers. One of them carries a state in place of its attention, if any does."""
    return 2 * len(LAYERS) + (len(OF_A_STATE) - 4 if FAMILY_OF[family].carries_state else 0)


@pytest.fixture(params=FAMILIES)
def family(request) -> str:
    return request.param


@pytest.fixture
def bench(family, model_folder) -> Bench:
    return Bench.load(model_folder(family))


def log_probs(bench: Bench, packed: PackedTrees) -> torch.Tensor:
    return bench.policy(packed, temperature=0.8).log_probs


def trained(bench: Bench, *, run_seed: int = 1, **options: object) -> Bench:
    """Adapters of noise, as if they had been trained for long."""
    attach_lora(bench.policy.model, LoraConfig.model_validate({"rank": 4, "alpha": 6, **options}), run_seed=run_seed)
    generator = torch.Generator().manual_seed(3)
    for parameter in trained_parameters(bench.policy):
        parameter.data = 0.2 * torch.randn(parameter.shape, generator=generator)
    return bench


def test_new_adapters_change_nothing(bench):
    packed = bench.two_trees()
    before = log_probs(bench, packed)
    weights = {name: weight.clone() for name, weight in named_hf_weights(bench.policy.model)}
    attach_lora(bench.policy.model, LoraConfig(rank=4), run_seed=1)
    assert torch.equal(log_probs(bench, packed), before)
    merged = dict(named_hf_weights(bench.policy.model))
    assert merged.keys() == weights.keys()
    assert all(torch.equal(merged[name], weight) for name, weight in weights.items())


def test_the_language_models_adapters_alone_get_a_gradient(bench, family):
    trained(bench)
    log_probs(bench, bench.two_trees()).sum().backward()
    with_gradient = {name for name, p in bench.policy.model.named_parameters() if p.grad is not None}
    assert with_gradient == {name for name, p in bench.policy.model.named_parameters() if p.requires_grad}
    assert {name.partition(".lora_")[0].rpartition(".")[2] for name in with_gradient} == layers_of(family)
    assert not any("visual" in name for name in with_gradient)


def test_merged_weights_compute_what_the_adapters_compute(bench, family, model_folder, tmp_path):
    packed = bench.two_trees()
    before = log_probs(bench, packed).detach()
    expected = log_probs(trained(bench, exclude_modules=None), packed).detach()
    write_hf_folder(bench.policy.model, processor_folder=model_folder(family), folder=tmp_path / "merged")
    merged = load_policy(tmp_path / "merged", model_config(tmp_path / "merged"))
    found = merged(packed, temperature=0.8).log_probs.detach()
    assert (found - expected).abs().max() < 2e-5
    assert (before - expected).abs().max() > 1e-2  # the control: the adapters matter


def test_with_its_adapters_off_a_policy_is_the_model_it_was(bench, family):
    packed = bench.two_trees()
    before = log_probs(bench, packed).detach()
    trained(bench)
    adapted = log_probs(bench, packed).detach()
    assert torch.equal(UnadaptedPolicy(bench.policy)(packed, temperature=0.8).log_probs, before)
    assert torch.equal(log_probs(bench, packed), adapted)
    with adapters_off(bench.policy.model):
        assert len(trained_parameters(bench.policy)) == 2 * num_adapted(family)


def test_recomputed_activations_give_the_same_gradient(family, model_folder):
    gradients = []
    for checkpointing in (False, True):
        bench = trained(Bench.load(model_folder(family), gradient_checkpointing=checkpointing))
        log_probs(bench, bench.two_trees()).sum().backward()
        gradients.append(take_gradients(bench.policy))
    assert torch.equal(*gradients)
    assert gradients[0].any()


def test_a_frozen_vision_tower_makes_no_backward_pass_when_activations_are_recomputed(family, model_folder):
    """Nor does it keep what only such a pass would need."""
    bench = trained(Bench.load(model_folder(family), gradient_checkpointing=True))
    needed = []
    vision = vision_of(bench.policy.config.model_type)
    tower = torch.nn.Module() if vision is None else bench.policy.model.base_model.get_submodule(vision.tower)
    for block in (block for found in tower.modules() if isinstance(found, torch.nn.ModuleList) for block in found):
        block.register_forward_hook(lambda _module, _inputs, output: needed.append(output.requires_grad))
    log_probs(bench, bench.two_trees()).sum().backward()
    assert not any(needed)
    assert bool(needed) == hasattr(bench.policy.config, "vision_config")


@pytest.fixture
def vision_model(model_folder) -> Iterator[Callable[..., torch.nn.Module]]:
    folder = model_folder("qwen2_5_vl")

    def adapt(*, run_seed: int = 1, dtype: str = "float32", **options: object) -> torch.nn.Module:
        model = load_model(folder, model_config(folder, dtype=dtype))
        attach_lora(model, LoraConfig.model_validate({"rank": 4, **options}), run_seed=run_seed)
        return model

    return adapt


def test_the_draw_depends_on_the_runs_seed_and_leaves_the_process_generator(vision_model):
    torch.manual_seed(5)
    state = torch.get_rng_state()
    first, again, other = (trained_parameters(vision_model(run_seed=seed)) for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert any(not torch.equal(a, b) for a, b in zip(first, other, strict=True))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_adapters_compute_in_the_models_number_format(dtype, vision_model):
    """Whatever a product is wider in would also be kept wider for the backward pass."""
    model = vision_model(dtype=str(dtype).removeprefix("torch."))
    assert {parameter.dtype for parameter in trained_parameters(model)} == {dtype}
    assert {weight.dtype for _, weight in named_hf_weights(model)} == {dtype}


def test_merged_bfloat16_weights_are_rounded_once(vision_model):
    model = vision_model(dtype="bfloat16", target_modules=("q_proj",), alpha=6)
    generator = torch.Generator().manual_seed(3)
    for parameter in trained_parameters(model):
        parameter.data = (0.2 * torch.randn(parameter.shape, generator=generator)).bfloat16()
    merged = dict(named_hf_weights(model))
    layer = model.model.language_model.layers[0].self_attn.q_proj
    base, inner, outer = layer.weight.double(), layer.lora_A["default"].weight, layer.lora_B["default"].weight
    exact = base + 6 / 4 * outer.double() @ inner.double()
    found = merged["model.language_model.layers.0.self_attn.q_proj.weight"]
    assert (found != exact.bfloat16()).float().mean() < 1e-3  # float32 sums rarely lie on the other side of a middle
    twice = (base + (6 / 4 * outer.double() @ inner.double()).bfloat16().double()).bfloat16()
    assert (found != twice).float().mean() > 1e-2  # the control


@pytest.mark.parametrize(
    ("options", "layers"),
    [
        ({"target_modules": ("q_proj", "v_proj")}, {"q_proj", "v_proj"}),
        ({"target_modules": r".*layers\.0.*\.(up|down)_proj"}, {"up_proj", "down_proj"}),
        ({"exclude_modules": r".*(visual|mlp).*"}, {"q_proj", "k_proj", "v_proj", "o_proj"}),
    ],
)
def test_layers_are_chosen_by_name(options, layers, vision_model):
    named = vision_model(**options).named_parameters()
    adapted = [name.partition(".lora_")[0] for name, parameter in named if parameter.requires_grad]
    assert {name.rpartition(".")[2] for name in adapted} == layers


@pytest.mark.parametrize(
    ("model_type", "fields", "others"),
    [
        ("qwen3_moe", {}, set()),
        ("olmoe", {}, set()),
        ("mixtral", {}, set()),
        ("qwen2_moe", {}, {"gate_proj", "up_proj", "down_proj", "shared_expert_gate"}),
        ("qwen3_moe", {"mlp_only_layers": [0]}, {"gate_proj", "up_proj", "down_proj"}),
    ],
)
def test_experts_get_no_adapters_and_are_refused_where_they_are_asked_for(model_type, fields, others):
    """Layers beside them whose names are those of the parts of an expert in checkpoints do get some."""
    with torch.device("meta"):
        everywhere, named = (AutoModelForCausalLM.from_config(tiny_config(model_type, **fields)) for _ in range(2))
    attach_lora(everywhere, LoraConfig(rank=2), run_seed=1)
    adapted = {name.partition(".lora_")[0] for name, weight in everywhere.named_parameters() if weight.requires_grad}
    assert {name.rpartition(".")[2] for name in adapted} == {"q_proj", "k_proj", "v_proj", "o_proj", *others}
    for target in (["q_proj", "down_proj"], r".*_proj", r".*experts.*"):
        with pytest.raises(ValueError, match=r"matches .*\.mlp\.experts.*, experts and blocks cannot be adapted"):
            attach_lora(named, LoraConfig(rank=2, target_modules=target), run_seed=1)


def test_a_pattern_of_single_layers_holds_for_them_alone_beside_experts():
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(tiny_config("qwen3_moe"))
    attach_lora(model, LoraConfig(rank=2, target_modules=r".*layers\.1\..*(q|k)_proj"), run_seed=1)
    adapted = {name.partition(".lora_")[0] for name, weight in model.named_parameters() if weight.requires_grad}
    assert adapted == {f"model.layers.1.self_attn.{name}" for name in ("q_proj", "k_proj")}
