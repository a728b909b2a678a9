"""Splitting loses nothing, and updates far below bfloat16's resolution add up."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from rl_core.training import split_adamw as split_adamw_module
from rl_core.training.split_adamw import SplitAdamW, join, split
from tests.rl_core.busy import busy_cores, threads_of_torch

OPTIONS = {"lr": 1e-6, "betas": (0.9, 0.999), "eps": 1e-8}


def split_adamw(weight: nn.Parameter, *, first_moment: torch.dtype = torch.float32, **options: object) -> SplitAdamW:
    group = {"params": [weight], "weight_decay": options.pop("weight_decay", 0.0)}
    return SplitAdamW([group], first_moment=first_moment, **{**OPTIONS, **options})


def number_of(optimizer: SplitAdamW, weight: nn.Parameter) -> torch.Tensor:
    return join(weight.detach(), optimizer.lower_bits[weight])


@settings(max_examples=30)
@given(
    seed=st.integers(0, 1000),
    steps=st.integers(1, 40),
    lr=st.sampled_from([1e-7, 1e-6, 1e-4, 1e-1]),
    scale=st.sampled_from([1e-3, 1.0, 100.0]),
    weight_decay=st.sampled_from([0.0, 0.01]),
)
def test_it_is_torchs_adamw_on_a_float32_copy_to_the_bit(seed, steps, lr, scale, weight_decay):
    assert_as_torchs_adamw((17, 3), seed=seed, steps=steps, lr=lr, scale=scale, weight_decay=weight_decay)


def test_it_is_torchs_adamw_at_a_size_at_which_threads_share_a_tensor():
    with threads_of_torch(8), busy_cores():
        assert_as_torchs_adamw((1001, 257), seed=0, steps=10, lr=1e-3, scale=1.0, weight_decay=0.01)


def assert_as_torchs_adamw(
    shape: tuple[int, int], *, seed: int, steps: int, lr: float, scale: float, weight_decay: float
) -> None:
    generator = torch.Generator().manual_seed(seed)
    weight = nn.Parameter((scale * torch.randn(*shape, generator=generator)).bfloat16())
    weight.grad_dtype = torch.float32
    copy = nn.Parameter(weight.detach().float())
    mine = split_adamw(weight, lr=lr, weight_decay=weight_decay)
    torchs = torch.optim.AdamW([copy], **{**OPTIONS, "lr": lr}, weight_decay=weight_decay, fused=True)
    for _ in range(steps):
        weight.grad = torch.randn(*shape, generator=generator)
        copy.grad = weight.grad.clone()
        mine.step()
        torchs.step()
    assert torch.equal(number_of(mine, weight), copy)
    assert torch.equal((copy - weight).abs(), (copy - copy.bfloat16()).abs())  # the nearest bfloat16


@settings(max_examples=20, deadline=None)
@given(
    size=st.floats(0.01, 8.0),
    sign=st.sampled_from([-1.0, 1.0]),
    first_moment=st.sampled_from([torch.bfloat16, torch.float32]),
)
def test_updates_below_the_resolution_of_the_weight_add_up(size, sign, first_moment):
    """A constant gradient moves a weight by the learning rate a step; bfloat16 alone would not move at all."""
    weight = nn.Parameter(torch.tensor([size]).bfloat16())
    start, steps, lr = weight.item(), 400, size * 2.0**-14
    optimizer = split_adamw(weight, lr=lr, first_moment=first_moment)
    for _ in range(steps):
        weight.grad = torch.tensor([sign]).bfloat16()
        optimizer.step()
    moved = number_of(optimizer, weight).item() - start
    assert moved == pytest.approx(-sign * lr * steps, rel=0.02)
    assert weight.item() != start


@pytest.mark.parametrize("in_host_memory", [False, True])
@pytest.mark.parametrize("first_moment", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_pieces_and_the_hosts_memory_change_no_number(dtype, first_moment, in_host_memory, monkeypatch):
    """The last of the 41 pieces is not full."""
    made = {}
    for piece in (1 << 24, 64):
        monkeypatch.setattr(split_adamw_module, "PIECE", piece)
        generator = torch.Generator().manual_seed(0)
        weight = nn.Parameter(torch.randn(131, 20, generator=generator).to(dtype))
        weight.grad_dtype = None
        optimizer = split_adamw(
            weight, lr=1e-3, weight_decay=0.01, first_moment=first_moment, in_host_memory=in_host_memory
        )
        for _ in range(5):
            weight.grad = torch.randn(131, 20, generator=generator).to(first_moment)
            optimizer.step()
        state = optimizer.state[weight]
        assert state["step"].item() == 5
        made[piece] = [weight.detach(), *state.values(), *optimizer.lower_bits.values()]
    assert len(made[64]) == (5 if dtype == torch.bfloat16 else 4)
    assert all(torch.equal(*pair) for pair in zip(*made.values(), strict=True))


# Magnitude bits of every float32 up to the largest that rounds to a finite bfloat16, and a sign.
NUMBERS = st.lists(st.tuples(st.integers(0, 0x7F7F7FFF), st.booleans()), min_size=1, max_size=50)


def float32(numbers: list[tuple[int, bool]]) -> torch.Tensor:
    bits = [magnitude - (1 << 31 if negative else 0) for magnitude, negative in numbers]
    return torch.tensor(bits, dtype=torch.int32).view(torch.float32)


@given(NUMBERS)
def test_joined_halves_are_the_number_to_the_bit(numbers):
    number = float32(numbers)
    assert torch.equal(join(*split(number)).view(torch.int32), number.view(torch.int32))


@given(NUMBERS)
def test_the_weight_is_as_near_as_a_bfloat16_can_be(numbers):
    number = float32(numbers)
    weight, _ = split(number)
    own, torchs = (number.double() - weight.double()).abs(), (number.double() - number.bfloat16().double()).abs()
    assert torch.equal(own, torchs)
