"""Rotations equal those of transformers, and only the layers that were asked for use them."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoModelForImageTextToText
from transformers.models.qwen2_5_vl import modeling_qwen2_5_vl as stock

from rl_core.models.faster_layers import use_faster_layers
from rl_core.models.rotary import rotate_heads, rotate_tokens
from tests.rl_core.models.builders import FAMILIES, VISION_FAMILIES


def drawn(*shape: int, generator: torch.Generator) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=generator, requires_grad=True)


@pytest.mark.parametrize("is_vision", [False, True])
def test_values_and_gradients_are_those_of_transformers(is_vision: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    shapes = ((5, 4, 8), (5, 4, 8)) if is_vision else ((1, 4, 5, 8), (1, 2, 5, 8))
    states = [drawn(*shape, generator=generator) for shape in shapes]
    angles = torch.rand(5, 4, dtype=torch.float64, generator=generator).repeat(1, 2)
    cos, sin = (table if is_vision else table[None] for table in (angles.cos(), angles.sin()))
    theirs, ours = (
        (stock.apply_rotary_pos_emb_vision, rotate_tokens) if is_vision else (stock.apply_rotary_pos_emb, rotate_heads)
    )
    tolerance = 1e-6 if is_vision else 1e-12  # transformers rounds the vision tower's to float32
    expected, actual = theirs(*states, cos, sin), ours(*states, cos, sin)
    torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)
    weights = [torch.randn(shape, dtype=torch.float64, generator=generator) for shape in shapes]

    def gradients(rotated: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        return torch.autograd.grad(sum((a * b).sum() for a, b in zip(rotated, weights, strict=True)), states)

    torch.testing.assert_close(gradients(actual), gradients(expected), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_attention_layer_of_a_float32_model_uses_them(family: str, model_folder: Callable[[str], Path]) -> None:
    factory = AutoModelForImageTextToText if family in VISION_FAMILIES else AutoModelForCausalLM
    model = factory.from_pretrained(model_folder(family), dtype=torch.float32)
    attentions = [module for module in model.modules() if type(module).__name__.endswith("Attention")]
    stock_classes = [type(module) for module in attentions]
    use_faster_layers(model)
    for module, stock_class in zip(attentions, stock_classes, strict=True):
        names = type(module).forward.__globals__
        assert isinstance(module, stock_class) and type(module).__name__ == stock_class.__name__
        assert rotate_heads in names.values() or rotate_tokens in names.values()
        assert not any(value in (rotate_heads, rotate_tokens) for value in vars(stock).values())


def test_a_bfloat16_model_keeps_the_rounding_of_every_step(model_folder: Callable[[str], Path]) -> None:
    model = AutoModelForCausalLM.from_pretrained(model_folder("llama"), dtype=torch.bfloat16)
    classes = [type(module) for module in model.modules() if type(module).__name__.endswith("Attention")]
    use_faster_layers(model)
    assert [type(module) for module in model.modules() if type(module).__name__.endswith("Attention")] == classes
