"""The float32 numbers that the optimizer moves, by name: what a checkpoint holds of a model that is trained.

How a worker keeps them is its own affair. Here a trained bfloat16 weight is the upper half of its number, and
SplitAdamW has the lower bits; parameters that FSDP2 shards in float32 and casts for the forward (MixedPrecisionPolicy)
are the numbers themselves. Both read and write the same tensors, and train the same numbers.
"""

from collections.abc import Iterator, Mapping

import torch
from torch import nn

from rl_core.training.split_adamw import SplitAdamW
from rl_core.training.split_weights import join, split


def master_weights(module: nn.Module, optimizer: torch.optim.Optimizer | None) -> dict[str, torch.Tensor]:
    """name -> [...] float32, of every trained bfloat16 weight; without an optimizer a weight is its own number. Weights
    of other formats are whole already and not among them. All lie in the machine's memory: together they are twice the
    weights, and the device has no room that was planned for them."""
    lower_bits = optimizer.lower_bits if isinstance(optimizer, SplitAdamW) else {}
    return {
        name: (join(weight.detach(), lower_bits[weight]) if weight in lower_bits else weight.detach().float()).cpu()
        for name, weight in _halves(module)
    }


def empty_master_weights(module: nn.Module) -> dict[str, torch.Tensor]:
    """Tensors for what `master_weights` gives."""
    return {
        name: torch.empty_like(weight, dtype=torch.float32, device="cpu", requires_grad=False)
        for name, weight in _halves(module)
    }


@torch.no_grad()
def take_master_weights(module: nn.Module, numbers: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Give the weights, in place, the upper halves of their numbers. Returns name -> [...] int16, the lower halves."""
    lower_bits = {}
    for name, weight in _halves(module):
        upper, lower_bits[name] = split(numbers[name].to(weight.device))
        weight.copy_(upper)
    return lower_bits


def give_lower_bits(
    module: nn.Module, optimizer: torch.optim.Optimizer, lower_bits: Mapping[str, torch.Tensor]
) -> None:
    """Hand the optimizer what `take_master_weights` left over."""
    if isinstance(optimizer, SplitAdamW):
        optimizer.lower_bits.update({weight: lower_bits[name] for name, weight in _halves(module)})


def _halves(module: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    for name, parameter in module.named_parameters():
        if parameter.requires_grad and parameter.dtype == torch.bfloat16:
            yield name, parameter
