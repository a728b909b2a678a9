"""The layers that take the place of transformers' own: patch projections, and the float32 logits of a bfloat16 model,
which are nearer to the exact ones, with an ordinary layer's gradients."""

from collections.abc import Iterator

import pytest
import torch
from torch import nn

from rl_core.config.model import ModelConfig, TinyModel
from rl_core.models.loading import load_model
from rl_core.models.replaced_layers import Float32Head, PatchProjection, float32_product, use_patch_projections

WIDTH, VOCABULARY = 64, 300


def test_a_patch_projection_is_the_convolution_over_a_whole_patch():
    generator = torch.Generator().manual_seed(0)
    convolution = nn.Conv3d(3, 8, kernel_size=(2, 4, 4), stride=(2, 4, 4)).double()
    projection = PatchProjection(convolution)
    assert dict(projection.named_parameters()).keys() == dict(convolution.named_parameters()).keys()
    patches = torch.randn(5, 3, 2, 4, 4, dtype=torch.float64, generator=generator, requires_grad=True)
    weight = torch.randn(5, 8, 1, 1, 1, dtype=torch.float64, generator=generator)
    found, expected = projection(patches), convolution(patches)
    torch.testing.assert_close(found, expected)
    leaves = (patches, *convolution.parameters())
    gradients = [torch.autograd.grad((out * weight).sum(), leaves) for out in (found, expected)]
    torch.testing.assert_close(*gradients)


def states_and_head() -> tuple[torch.Tensor, nn.Linear]:
    generator = torch.Generator().manual_seed(0)
    head = nn.Linear(WIDTH, VOCABULARY, bias=False, dtype=torch.bfloat16)
    with torch.no_grad():
        head.weight.copy_(torch.randn(VOCABULARY, WIDTH, generator=generator))
    return torch.randn(7, WIDTH, generator=generator).bfloat16(), head


@pytest.fixture(params=["none", "ieee"])
def precision(request) -> Iterator[str]:
    """That of all float32 products, which torch has no other way to put back."""
    products = torch.backends.mkldnn.matmul
    before, products.fp32_precision = products.fp32_precision, request.param
    yield request.param
    products.fp32_precision = before


@pytest.mark.parametrize("words", [4095, 4096, 9001])
def test_the_float32_product_of_a_large_vocabulary_is_exact_and_leaves_other_products_as_they_are(words, precision):
    generator = torch.Generator().manual_seed(words)
    hidden, weight = (torch.randn(count, 576, generator=generator).bfloat16() for count in (33, words))
    product = float32_product(hidden, weight)
    assert torch.backends.mkldnn.matmul.fp32_precision == precision
    torch.testing.assert_close(product.double(), hidden.double() @ weight.double().t(), rtol=1e-5, atol=1e-4)


def test_gradients_are_those_of_the_ordinary_layer():
    hidden, head = states_and_head()
    weight = torch.randn(7, VOCABULARY, generator=torch.Generator().manual_seed(1))
    found = []
    for layer in (head, Float32Head(head.weight)):
        leaf = hidden.clone().requires_grad_()
        (layer(leaf).float() * weight).sum().backward()
        assert head.weight.grad is not None
        found.append((leaf.grad, head.weight.grad.clone()))
        head.weight.grad = None
    torch.testing.assert_close(found[0], found[1], rtol=0, atol=0)


def test_an_addition_to_the_logits_in_place_copies_no_gradient():
    hidden, head = states_and_head()
    logits = Float32Head(head.weight)(hidden)
    assert not logits._is_view()  # to whose base autograd would copy the gradient


def test_a_frozen_weight_gets_no_gradient():
    hidden, head = states_and_head()
    head.weight.requires_grad_(False)
    leaf = hidden.requires_grad_()
    Float32Head(head.weight)(leaf).sum().backward()
    assert leaf.grad is not None
    assert head.weight.grad is None


def test_bfloat16_models_have_it_with_the_same_parameter_names(model_folder):
    for family in ("qwen2_5_vl", "qwen2_5"):
        folder, source = model_folder(family), TinyModel(type="tiny")
        half = load_model(folder, ModelConfig(source=source, dtype="bfloat16"))
        full = load_model(folder, ModelConfig(source=source, dtype="float32"))
        assert isinstance(half.get_output_embeddings(), Float32Head)
        assert isinstance(full.get_output_embeddings(), nn.Linear)
        assert [name for name, _ in half.named_parameters()] == [name for name, _ in full.named_parameters()]
        is_tied = half.get_output_embeddings().weight is half.get_input_embeddings().weight
        assert is_tied == (full.get_output_embeddings().weight is full.get_input_embeddings().weight)


def test_a_patch_projection_of_more_than_a_patch_is_the_convolution():
    convolution = nn.Conv3d(3, 8, kernel_size=(2, 4, 4), stride=(2, 4, 4))
    video = torch.randn(1, 3, 4, 8, 12, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(PatchProjection(convolution)(video), convolution(video))


@pytest.mark.parametrize("fields", [{"padding": 1}, {"dilation": 2}, {"groups": 3}, {"stride": (2, 4, 2)}])
def test_a_convolution_that_does_not_go_from_patch_to_patch_stays(fields):
    parts = nn.Sequential(nn.Conv3d(3, 9, kernel_size=(2, 4, 4), **{"stride": (2, 4, 4), **fields}))
    use_patch_projections(parts)
    assert type(parts[0]) is nn.Conv3d
