"""The attention of a CPU, without copies of prompts: one gradient in every run, and the faster way for the lengths.
Values and gradients are compared with the full mask's in test_tree_attention.py."""

import pytest
import torch

from rl_core.models.cpu.shared_prompt import tree_shared_prompt
from rl_core.models.cpu.short_tree import is_short, tree_products
from rl_core.models.tree_layout import TreeLayout, TreeSpans
from tests.rl_core.busy import busy_cores, threads_of_torch

SHORT = ([40, 37, 44, 40], [[9, 12, 0, 7, 11, 12], [12] * 6, [3, 12, 12], [8] * 5])
LONG = ([40, 37, 44, 40], [[9, 32, 0, 27, 31, 32], [32] * 6, [3, 32, 32], [28] * 5])
ALONE = ([128], [[32, 31, 5, 32, 30, 32, 32, 32]])
QUICKSTART = ([35] * 16, [[8, 9, 10, 10, 11, 9, 10, 8]] * 16)


def layout_of(prompts: list[int], responses: list[list[int]]) -> TreeLayout:
    return TreeLayout(TreeSpans(prompts, responses), device=torch.device("cpu"))


def outputs(
    form,
    trees: tuple[list[int], list[list[int]]],
    dtype: torch.dtype,
    *,
    key_heads: int = 2,
    computed_in: torch.dtype | None = None,
) -> list[torch.Tensor]:
    """Output, and gradients of query, key and value, for numbers that `dtype` has."""
    layout, computed_in = layout_of(*trees), computed_in or dtype
    generator = torch.Generator().manual_seed(0)
    shapes = [(layout.num_tokens, heads, 32) for heads in (4, key_heads, key_heads, 4)]
    *states, weight = (torch.randn(shape, generator=generator).to(dtype).to(computed_in) for shape in shapes)
    out = form(*(state.requires_grad_() for state in states), layout=layout, scale=0.2)
    assert out.dtype == computed_in
    return [out.detach(), *torch.autograd.grad((out * weight).sum(), states)]


def as_bytes(tensors: list[torch.Tensor]) -> tuple[bytes, ...]:
    return tuple(tensor.float().numpy().tobytes() for tensor in tensors)


@pytest.mark.parametrize("key_heads", [1, 2, 4])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 2e-6), (torch.bfloat16, 2e-2)])
def test_products_come_to_what_the_kernel_computes(key_heads, dtype, tolerance):
    """The kernel in float64, because in bfloat16 its sums over responses are rounded once more."""
    expected = outputs(tree_shared_prompt, SHORT, dtype, key_heads=key_heads, computed_in=torch.float64)
    actual = [part.double() for part in outputs(tree_products, SHORT, dtype, key_heads=key_heads)]
    torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(
    ("trees", "dtype"), [(SHORT, torch.bfloat16), (ALONE, torch.float32), (QUICKSTART, torch.float32)]
)
def test_products_have_equal_bits_in_every_run_on_a_busy_machine(trees, dtype):
    with threads_of_torch(8), busy_cores():
        assert len({as_bytes(outputs(tree_products, trees, dtype)) for _ in range(40)}) == 1


@pytest.mark.parametrize(("trees", "dtype"), [(SHORT, torch.float32), (LONG, torch.bfloat16)])
def test_the_kernel_gives_equal_bits_with_any_number_of_threads(trees, dtype):
    with threads_of_torch(1):
        expected = as_bytes(outputs(tree_shared_prompt, trees, dtype))
    with threads_of_torch(8), busy_cores():
        assert {as_bytes(outputs(tree_shared_prompt, trees, dtype)) for _ in range(40)} == {expected}


@pytest.mark.parametrize(
    ("prompts", "responses", "short"),
    [([35, 128], [[32, 0], [1]], True), ([129], [[4]], False), ([35], [[33, 1]], False), ([35], [[0]], True)],
)
def test_trees_are_short_by_their_longest_prompt_and_response(prompts, responses, short):
    assert is_short(layout_of(prompts, responses)) == short
