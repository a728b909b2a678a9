"""Attention of short rows against the kernel that long rows use: values, log-sum-exps and gradients."""

import pytest
import torch

from rl_core.models.shared_prompt_attention import _Kernel
from rl_core.models.short_attention import ShortRows, are_short

ROWS, SLOTS, HEADS, HEAD_SIZE = 7, 10, 4, 32


@pytest.mark.parametrize("key_heads", [1, 2, 4])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 2e-6), (torch.bfloat16, 2e-2)])
def test_short_rows_come_to_what_the_kernel_computes(key_heads: int, dtype: torch.dtype, tolerance: float) -> None:
    generator = torch.Generator().manual_seed(0)
    query, key, value, grad = (
        torch.randn(ROWS, SLOTS, heads, HEAD_SIZE, generator=generator).to(dtype)
        for heads in (HEADS, key_heads, key_heads, HEADS)
    )
    kernel, short = _Kernel(is_causal=True, mask=None, scale=0.2), ShortRows(0.2)

    expected, actual = (way.forward(query, key, value) for way in (kernel, short))
    torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)

    # Other keys have been attended to as well, so that these weights sum to less than one.
    out = expected[0].view_as(query) + 0.5
    log_sum_exp = expected[1].view(ROWS, SLOTS, HEADS) + 0.5
    gradients = [way.backward(grad, query, key, value, out, log_sum_exp) for way in (kernel, short)]
    torch.testing.assert_close(gradients[1], gradients[0], rtol=tolerance, atol=tolerance)


def test_rows_are_short_by_the_size_of_their_queries() -> None:
    assert are_short(torch.empty(128, 12, 4, 32))
    assert not are_short(torch.empty(128, 12, 4, 128))
    assert not are_short(torch.empty(128, 512, 4, 32))
