"""Nothing is lost between a float32 number and its two halves."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from rl_core.training.split_weights import join, split

# Magnitude bits of every float32 up to the largest that rounds to a finite bfloat16, and a sign.
NUMBERS = st.lists(st.tuples(st.integers(0, 0x7F7F7FFF), st.booleans()), min_size=1, max_size=50)


def float32(numbers: list[tuple[int, bool]]) -> torch.Tensor:
    bits = [magnitude - (1 << 31 if negative else 0) for magnitude, negative in numbers]
    return torch.tensor(bits, dtype=torch.int32).view(torch.float32)


@given(NUMBERS)
def test_joined_halves_are_the_number_to_the_bit(numbers: list[tuple[int, bool]]) -> None:
    number = float32(numbers)
    assert torch.equal(join(*split(number)).view(torch.int32), number.view(torch.int32))


@given(NUMBERS)
def test_the_weight_is_as_near_as_a_bfloat16_can_be(numbers: list[tuple[int, bool]]) -> None:
    number = float32(numbers)
    weight, _ = split(number)
    own, torchs = (number.double() - weight.double()).abs(), (number.double() - number.bfloat16().double()).abs()
    assert torch.equal(own, torchs)


@given(st.lists(st.floats(-6e4, 6e4, width=16), min_size=1, max_size=20))
def test_a_weight_alone_is_a_number_without_a_rest(numbers: list[float]) -> None:
    weight = torch.tensor(numbers).bfloat16()
    again, lower = split(weight.float())
    assert not lower.any()
    assert torch.equal(again.view(torch.int16), weight.view(torch.int16))
