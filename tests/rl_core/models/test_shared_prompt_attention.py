"""Attention without copies of prompts: one gradient in every run, whatever the number of threads. Its values and
gradients are compared with the full mask's in test_tree_attention.py."""

import pytest
import torch

from rl_core.models.shared_prompt_attention import tree_shared_prompt
from rl_core.models.tree_layout import TreeLayout, TreeSpans
from tests.rl_core.busy import busy_cores, threads_of_torch

PROMPTS = [40, 37, 44, 40]
RESPONSES = [[9, 12, 0, 7, 11, 12], [12] * 6, [3, 12, 12], [8] * 5]
LONG_RESPONSES = [[9, 32, 0, 27, 31, 32], [32] * 6, [3, 32, 32], [28] * 5]


def outputs(responses: list[list[int]], dtype: torch.dtype) -> tuple[bytes, ...]:
    """Output and gradients as bytes."""
    layout = TreeLayout(TreeSpans(PROMPTS, responses), device=torch.device("cpu"))
    num_tokens = sum(PROMPTS) + sum(map(sum, responses))
    generator = torch.Generator().manual_seed(0)
    shapes = [(num_tokens, heads, 32) for heads in (4, 2, 2)]
    states = [torch.randn(shape, generator=generator).to(dtype).requires_grad_() for shape in shapes]
    out = tree_shared_prompt(*states, layout=layout, scale=0.2)
    weight = torch.randn(out.shape, generator=generator).to(dtype)
    gradients = torch.autograd.grad((out * weight).sum(), states)
    return tuple(tensor.detach().float().numpy().tobytes() for tensor in (out, *gradients))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("responses", [RESPONSES, LONG_RESPONSES], ids=["products", "kernel"])
def test_equal_bits_in_every_run_on_a_busy_machine(responses: list[list[int]], dtype: torch.dtype) -> None:
    with threads_of_torch(1):
        expected = outputs(responses, dtype)
    with threads_of_torch(8), busy_cores():
        assert {outputs(responses, dtype) for _ in range(40)} == {expected}
