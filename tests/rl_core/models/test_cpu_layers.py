"""A model with the code for a CPU computes what one without it does, with the same parameters under the same names."""

from inspect import unwrap

import pytest
import torch
from transformers import AutoModelForCausalLM
from transformers.models.qwen2_5_vl import modeling_qwen2_5_vl as stock

from rl_core.cpu_switches import CPU_MODEL
from rl_core.models.cpu.layers import RMSNorm, rotate_heads, rotate_tokens, use_cpu_layers
from tests.rl_core.models.builders import FAMILIES, VISION_FAMILIES, Bench, relative_difference, take_gradients
from tests.rl_core.models.text_families import policy_of, write_text_model


def log_probs_and_gradient(bench: Bench, *, longest: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Of two trees, one with images; responses of up to so many tokens."""
    images = ["wide-1", "square-1"] if bench.policy.config.model_type in VISION_FAMILIES else []
    trees = [bench.tree([6] * (len(images) + 1), images, [longest, 3, 1]), bench.tree([4], [], [2, longest], seed=1)]
    packed = bench.pack(trees)
    log_probs = bench.policy(packed, temperature=1.0).log_probs
    (log_probs * torch.randn(len(log_probs), generator=torch.Generator().manual_seed(0))).sum().backward()
    return log_probs.detach(), take_gradients(bench.policy)


@pytest.mark.parametrize("family", FAMILIES)
def test_switched_off_a_model_computes_the_same_up_to_rounding(family, model_folder, monkeypatch):
    mine = Bench.load(model_folder(family))
    monkeypatch.setenv(CPU_MODEL, "0")
    plain = Bench.load(model_folder(family))
    assert [name for name, _ in mine.policy.named_parameters()] == [name for name, _ in plain.policy.named_parameters()]
    attention = [bench.policy.config.get_text_config()._attn_implementation for bench in (mine, plain)]
    assert attention == ["tree_on_a_cpu", "tree"]
    assert "rl_core.models.cpu" not in {type(module).__module__.rpartition(".")[0] for module in plain.policy.modules()}
    for longest in (9, 40):  # short and long trees attend in different ways
        (found, found_gradient), (expected, gradient) = (
            log_probs_and_gradient(bench, longest=longest) for bench in (mine, plain)
        )
        assert relative_difference(found, expected) < 2e-6
        assert relative_difference(found_gradient, gradient) < 3e-6


@pytest.mark.parametrize("family", FAMILIES)
def test_every_attention_layer_of_a_float32_model_rotates_with_them(family, model_folder):
    """But for those that rotate a part of each head."""
    model = Bench.load(model_folder(family)).policy
    in_part = getattr(model.config.get_text_config(), "rope_parameters", {}).get("partial_rotary_factor", 1.0) < 1.0
    attentions = [module for module in model.modules() if type(module).__name__.endswith("Attention")]
    called = {module: unwrap(type(module).forward).__code__.co_names for module in attentions}
    rotating = [module for module in attentions if any("rotary" in name for name in called[module])]
    assert rotating
    for module in rotating:
        names = type(module).forward.__globals__
        is_replaced = rotate_heads in names.values() or rotate_tokens in names.values()
        assert is_replaced == ("Vision" in type(module).__name__ or not in_part)
    assert not any(value in (rotate_heads, rotate_tokens) for value in vars(stock).values()), "transformers has its own"


def test_bfloat16_norms_and_rotations_stay_as_they_are(model_folder):
    """The rounding of every step is part of the model: transformers computes norms in float32 and rounds once."""
    model = AutoModelForCausalLM.from_pretrained(model_folder("llama"), dtype=torch.bfloat16)
    classes = [type(module) for module in model.modules()]
    use_cpu_layers(model)
    assert [type(module) for module in model.modules()] == classes


@pytest.mark.parametrize(
    ("family", "rotates", "norms"),
    [
        ("mistral", True, True),
        ("deepseek_v3", True, True),
        ("gemma3_text", True, False),  # the norm adds 1 to its weight
        ("glm4", False, True),  # rotates half of each head
        ("gemma4_text", False, False),  # another signature
        ("gpt_oss", False, False),  # cosines of half a head
        ("olmo2", False, False),  # rounds elsewhere
    ],
)
def test_a_function_with_only_the_name_of_a_proven_one_is_not_replaced(family, rotates, norms, tmp_path):
    model = policy_of(write_text_model(tmp_path, family)).model
    attentions = [module for module in model.modules() if type(module).__name__.endswith("Attention")]
    assert {rotate_heads in type(module).forward.__globals__.values() for module in attentions} == {rotates}
    assert any(type(module) is RMSNorm for module in model.modules()) == norms
