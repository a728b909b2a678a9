"""The attention of a CPU, without copies of prompts: one gradient in every run, and the faster way for the lengths.
Values and gradients are compared with the full mask's in test_tree_attention.py."""

import pytest
import torch

from rl_core.models.shared_prompt_attention import tree_shared_prompt
from rl_core.models.short_tree_attention import is_short, tree_products
from rl_core.models.tree_layout import TreeLayout, TreeSpans
from tests.rl_core.busy import busy_cores, threads_of_torch

SHORT = ([40, 37, 44, 40], [[9, 12, 0, 7, 11, 12], [12] * 6, [3, 12, 12], [8] * 5])
LONG = ([40, 37, 44, 40], [[9, 32, 0, 27, 31, 32], [32] * 6, [3, 32, 32], [28] * 5])
ALONE = ([128], [[32, 31, 5, 32, 30, 32, 32, 32]])
QUICKSTART = ([35] * 16, [[8, 9, 10, 10, 11, 9, 10, 8]] * 16)


def layout_of(prompts: list[int], responses: list[list[int]]) -> TreeLayout:
    return TreeLayout(TreeSpans(prompts, responses), device=torch.device("cpu"))


def outputs(form, trees: tuple[list[int], list[list[int]]], dtype: torch.dtype) -> tuple[bytes, ...]:  # type: ignore[no-untyped-def]
    """Output and gradients as bytes."""
    layout = layout_of(*trees)
    generator = torch.Generator().manual_seed(0)
    shapes = [(layout.num_tokens, heads, 32) for heads in (4, 2, 2)]
    states = [torch.randn(shape, generator=generator).to(dtype).requires_grad_() for shape in shapes]
    out = form(*states, layout=layout, scale=0.2)
    assert out.dtype == dtype
    weight = torch.randn(out.shape, generator=generator).to(dtype)
    gradients = torch.autograd.grad((out * weight).sum(), states)
    return tuple(tensor.detach().float().numpy().tobytes() for tensor in (out, *gradients))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("form", "trees"),
    [
        pytest.param(tree_products, SHORT, id="products"),
        pytest.param(tree_products, ALONE, id="products-one-prompt"),
        pytest.param(tree_products, QUICKSTART, id="products-quickstart"),
        pytest.param(tree_shared_prompt, LONG, id="kernel"),
    ],
)
def test_equal_bits_in_every_run_on_a_busy_machine(form, trees, dtype: torch.dtype) -> None:  # type: ignore[no-untyped-def]
    with threads_of_torch(8), busy_cores():
        assert len({outputs(form, trees, dtype) for _ in range(40)}) == 1


@pytest.mark.parametrize(
    ("prompts", "responses", "short"),
    [([35, 128], [[32, 0], [1]], True), ([129], [[4]], False), ([35], [[33, 1]], False), ([35], [[0]], True)],
)
def test_trees_are_short_by_their_longest_prompt_and_response(
    prompts: list[int], responses: list[list[int]], short: bool
) -> None:
    assert is_short(layout_of(prompts, responses)) == short
