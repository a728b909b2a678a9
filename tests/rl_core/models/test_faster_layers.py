"""The replaced layers compute what transformers' own do, hold the same parameters and keep their names."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn
from transformers import AutoModelForCausalLM, AutoModelForImageTextToText, PreTrainedModel

from rl_core.models.faster_layers import PatchProjection, RMSNorm, use_faster_layers
from tests.rl_core.models.builders import (
    FAMILIES,
    VISION_FAMILIES,
    Bench,
    relative_difference,
    roughen,
    take_gradients,
)


def stock_model(folder: Path, family: str) -> PreTrainedModel:
    factory = AutoModelForImageTextToText if family in VISION_FAMILIES else AutoModelForCausalLM
    model = factory.from_pretrained(folder, dtype=torch.float32)
    roughen(model)
    return model


def forward_and_gradients(model: PreTrainedModel, inputs: dict[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    logits = model(**inputs, use_cache=False).logits
    weight = torch.randn(logits.shape, generator=torch.Generator().manual_seed(0))
    (logits * weight).sum().backward()
    return logits.detach(), take_gradients(model)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_model_with_replaced_layers_equals_the_stock_model(family: str, model_folder: Callable[[str], Path]) -> None:
    model = stock_model(model_folder(family), family)
    inputs = {"input_ids": torch.arange(12)[None]}
    if family in VISION_FAMILIES:
        bench = Bench.load(model_folder(family))
        prompt = bench.prompt([3, 2], ["wide-1"])
        image = bench.pixels.get(prompt.image_uids)[0]
        tokens = torch.from_numpy(prompt.token_ids).long()[None]
        inputs = {
            "input_ids": tokens,
            "pixel_values": bench.pixels.normalised(image.values),
            "image_grid_thw": torch.tensor([image.grid_thw]),
            "mm_token_type_ids": (tokens == model.config.image_token_id).int(),
        }
    stock = forward_and_gradients(model, inputs)
    names = [name for name, _ in model.named_parameters()]
    use_faster_layers(model)
    replaced = [type(module) for module in model.modules() if isinstance(module, PatchProjection | RMSNorm)]
    assert RMSNorm in replaced
    assert (PatchProjection in replaced) == (family in VISION_FAMILIES)
    assert [name for name, _ in model.named_parameters()] == names
    faster = forward_and_gradients(model, inputs)
    assert relative_difference(faster[0], stock[0]) < 2e-6
    assert relative_difference(faster[1], stock[1]) < 2e-6


def test_rms_norm_has_the_derivative_of_its_formula() -> None:
    weight = nn.Parameter(torch.tensor([0.5, 2.0, -1.0, 1.5], dtype=torch.float64))
    norm = RMSNorm(weight, eps=1e-3)
    hidden = torch.randn(2, 3, 4, dtype=torch.float64, requires_grad=True, generator=torch.Generator().manual_seed(0))
    assert torch.autograd.gradcheck(lambda x, _: norm(x), (hidden, weight))


def test_bfloat16_norms_stay_as_they_are(model_folder: Callable[[str], Path]) -> None:
    """Their rounding is part of the model: transformers computes them in float32 and rounds once."""
    model = AutoModelForCausalLM.from_pretrained(model_folder("llama"), dtype=torch.bfloat16)
    use_faster_layers(model)
    assert not any(isinstance(module, RMSNorm) for module in model.modules())
