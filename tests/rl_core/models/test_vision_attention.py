"""Segments of a packed sequence attend to themselves only, whatever their lengths."""

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from rl_core.models.cpu.layers import attend_patches
from rl_core.models.vision_tower import vision_attention


@pytest.mark.parametrize("attend", [scaled_dot_product_attention, attend_patches])
@pytest.mark.parametrize("lengths", [[4, 4, 4], [5], [4, 2, 4, 1, 2], [150, 4, 150]])
def test_each_segment_attends_within_itself(lengths, attend):
    generator = torch.Generator().manual_seed(0)
    shape = (1, 2, sum(lengths), 8)
    states = [torch.randn(shape, generator=generator, dtype=torch.float64, requires_grad=True) for _ in range(3)]
    bounds = torch.tensor([0, *lengths]).cumsum(0).int()
    attention = vision_attention(attend)
    actual, _ = attention(torch.nn.Identity(), *states, None, scaling=0.5, cu_seq_lens_q=bounds, is_causal=False)
    pieces = zip(*(tensor.split(lengths, dim=2) for tensor in states), strict=True)
    expected = torch.cat([scaled_dot_product_attention(*piece, scale=0.5) for piece in pieces], dim=2).transpose(1, 2)
    torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-10)
    weight = torch.randn(actual.shape, generator=generator, dtype=torch.float64)
    torch.testing.assert_close(
        torch.autograd.grad((actual * weight).sum(), states),
        torch.autograd.grad((expected * weight).sum(), states),
        rtol=1e-10,
        atol=1e-10,
    )


@pytest.mark.parametrize(
    "argument", [{"softcap": 5.0}, {"s_aux": torch.zeros(2)}, {"dropout": 0.1}, {"is_causal": True}, {"made_up": False}]
)
def test_a_tower_that_asks_for_more_is_refused_by_name(argument):
    states = [torch.zeros(1, 2, 4, 8)] * 3
    bounds = torch.tensor([0, 4]).int()
    attention = vision_attention(scaled_dot_product_attention)
    with pytest.raises(ValueError, match=f"Identity .*{next(iter(argument))}"):
        attention(torch.nn.Identity(), *states, None, scaling=0.5, cu_seq_lens_q=bounds, **argument)
