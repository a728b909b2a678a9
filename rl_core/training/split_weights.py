"""A float32 number as a bfloat16 weight and the 16 bits that the weight cuts off.

bfloat16 is the upper half of a float32. Rounded to nearest, the lower half read as a signed integer is what to add to
the weight's bits to have the number back, exactly (Split-SGD-BF16 of Kalamkar et al. 2020, arXiv:2005.04680, section 5,
with rounding in place of truncation). It takes the memory of a Kahan compensation in bfloat16, whose own eight bits
stop an update below 2^-17 of the weight: at a learning rate of 1e-6 every update of a weight above 0.1.
"""

import torch


def join(weight: torch.Tensor, lower: torch.Tensor) -> torch.Tensor:
    """The float32 numbers that `split` took apart; [...] bfloat16 and [...] int16."""
    bits = weight.view(torch.int16).to(torch.int32) * 65536 + lower
    return bits.view(torch.float32)


def split(number: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """[...] float32 -> [...] bfloat16, the nearest (ties away from zero), and [...] int16, the lower bits."""
    bits = number.view(torch.int32)
    lower = bits.to(torch.int16)  # the lower half, read as signed: negative where the upper half is rounded up
    upper = ((bits - lower) >> 16).to(torch.int16)
    return upper.view(torch.bfloat16), lower
