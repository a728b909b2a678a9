"""Every form of tree attention against attention with the full mask, gradients included."""

from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import scaled_dot_product_attention

from rl_core.models import tree_attention
from rl_core.models.cpu.shared_prompt import tree_shared_prompt
from rl_core.models.cpu.short_tree import tree_products
from rl_core.models.tree_attention import tree_sdpa, tree_varlen
from rl_core.models.tree_layout import TreeLayout, TreeSpans
from tests.rl_core.models.builders import varlen_attention

HEADS, KEY_HEADS, HEAD_SIZE = 4, 2, 8
SCALE = 0.3


def full_mask(prompts: list[int], responses: list[list[int]]) -> torch.Tensor:
    """[T, T] bool, written from the definition: a token sees its own branch up to itself, and its prompt."""
    branch: list[tuple[int, int | None]] = []
    for tree, (prompt, inputs) in enumerate(zip(prompts, responses, strict=True)):
        branch += [(tree, None)] * prompt
        for number, length in enumerate(inputs):
            branch += [(tree, number)] * length
    mask = torch.zeros(len(branch), len(branch), dtype=torch.bool)
    for row, (tree, number) in enumerate(branch):
        for column in range(row + 1):
            mask[row, column] = branch[column] in ((tree, None), (tree, number))
    return mask


trees = st.lists(
    st.tuples(st.integers(1, 6), st.lists(st.integers(0, 5), min_size=1, max_size=4)), min_size=1, max_size=3
)


def sdpa_as_on_cuda(*args, **options) -> torch.Tensor:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tree_attention, "_needs_every_head", lambda query, mask: mask is not None)
        return tree_sdpa(*args, **options)


FORMS = {
    "shared prompt": tree_shared_prompt,
    "products": tree_products,
    "sdpa": tree_sdpa,
    "sdpa as on CUDA": sdpa_as_on_cuda,
    "varlen": partial(tree_varlen, attend=varlen_attention),
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
@settings(max_examples=30)
@given(drawn=trees, key_heads=st.sampled_from([KEY_HEADS, HEADS]))
def test_tree_attention_is_attention_with_the_full_mask(form, drawn, key_heads):
    prompts, responses = [prompt for prompt, _ in drawn], [inputs for _, inputs in drawn]
    mask = full_mask(prompts, responses)
    layout = TreeLayout(TreeSpans(prompts, responses), device=torch.device("cpu"))
    generator = torch.Generator().manual_seed(0)
    shapes = [(len(mask), heads, HEAD_SIZE) for heads in (HEADS, key_heads, key_heads)]
    states = [torch.randn(shape, generator=generator, dtype=torch.float64, requires_grad=True) for shape in shapes]
    weight = torch.randn(shapes[0], generator=generator, dtype=torch.float64)

    expected = scaled_dot_product_attention(
        *(tensor.transpose(0, 1)[None] for tensor in states), attn_mask=mask, scale=SCALE, enable_gqa=True
    )[0].transpose(0, 1)
    actual = form(*states, layout=layout, scale=SCALE)
    torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-10)
    expected_gradients = torch.autograd.grad((expected * weight).sum(), states)
    actual_gradients = torch.autograd.grad((actual * weight).sum(), states)
    torch.testing.assert_close(actual_gradients, expected_gradients, rtol=1e-10, atol=1e-10)
