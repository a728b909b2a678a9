"""With model.dtype bfloat16 the forward really computes in it, and its gradient is that of float32 to its precision."""

import re
from collections.abc import Callable

import pytest
import torch
from torch import nn

from rl_core.families import registry
from rl_core.families.registry import vision_modules
from rl_core.models.value import load_value_model
from tests.rl_core.models.builders import VISION_FAMILIES, Bench, model_config, relative_difference, take_gradients

FAMILIES = (*VISION_FAMILIES, "llama")


def output_formats(model: nn.Module, run: Callable[[], object]) -> dict[str, torch.dtype]:
    """Module name -> number format of what it returned."""
    formats = {}

    def note(name: str) -> Callable[..., None]:
        def hook(_module: nn.Module, _inputs: object, output: object) -> None:
            tensor = output[0] if isinstance(output, tuple) else output
            if isinstance(tensor, torch.Tensor) and tensor.is_floating_point():
                formats[name] = tensor.dtype

        return hook

    handles = [module.register_forward_hook(note(name)) for name, module in model.named_modules()]
    run()
    for handle in handles:
        handle.remove()
    return formats


@pytest.mark.parametrize("family", FAMILIES)
def test_layers_compute_in_bfloat16_and_distributions_in_float32(family, model_folder):
    bench = Bench.load(model_folder(family), dtype="bfloat16")
    outputs = []
    packed = bench.two_trees()
    formats = output_formats(
        bench.policy.model, lambda: outputs.append(bench.policy(packed, temperature=0.8, entropy="value"))
    )
    wide = {name for name, dtype in formats.items() if dtype != torch.bfloat16 and "rotary" not in name}
    assert wide == {"lm_head"}
    ends = (".q_proj", ".down_proj", "lm_head")
    attending = 1 if registry.FAMILIES[family].carries_state else 2
    of_text = [name for name in formats if name.endswith(ends) and not re.fullmatch(vision_modules(), name)]
    assert len(of_text) == attending + 2 + 1
    assert any(re.fullmatch(vision_modules(), name) for name in formats) == (family in VISION_FAMILIES)
    assert {outputs[0].log_probs.dtype, outputs[0].entropy.dtype} == {torch.float32}


@pytest.mark.parametrize("family", FAMILIES)
def test_buffers_are_float32(family, model_folder):
    """A rotary angle of a late position needs all its bits."""
    policy = Bench.load(model_folder(family), dtype="bfloat16").policy
    formats = {name: buffer.dtype for name, buffer in policy.named_buffers() if buffer.is_floating_point()}
    assert any("inv_freq" in name for name in formats)
    assert set(formats.values()) == {torch.float32}


@pytest.mark.parametrize("family", FAMILIES)
def test_the_gradient_is_that_of_float32_to_bfloat16s_precision(family, model_folder):
    """From equal weights; three digits of each product are lost, and errors partly cancel."""
    gradients = []
    half, whole = (Bench.load(model_folder(family), dtype=dtype) for dtype in ("bfloat16", "float32"))
    for mine, rounded in zip(whole.policy.parameters(), half.policy.parameters(), strict=True):
        mine.data.copy_(rounded)
    for bench in (half, whole):
        bench.policy(bench.two_trees(), temperature=0.8).log_probs.sum().backward()
        gradients.append(take_gradients(bench.policy).float())
    assert 1e-4 < relative_difference(*gradients) < 0.05


def test_a_critics_values_and_head_are_float32_on_a_bfloat16_body(model_folder):
    folder = model_folder("qwen2_5_vl")
    bench = Bench.load(folder, dtype="bfloat16")
    critic = load_value_model(folder, model_config(folder, dtype="bfloat16"))
    packed = bench.two_trees()
    formats = output_formats(critic.body, lambda: critic(packed))
    assert {dtype for name, dtype in formats.items() if "rotary" not in name} == {torch.bfloat16}
    assert critic(packed).dtype == critic.head.weight.dtype == torch.float32
