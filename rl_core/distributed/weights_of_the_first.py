"""Gives all ranks the weights that the first rank has read, so that files are read once, and only one rank of all ever
has the whole model in the memory of its machine."""

from collections.abc import Mapping

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor, distribute_tensor

from rl_core.distributed.ranks import Ranks


def parameters_of(module: nn.Module) -> dict[str, torch.Tensor]:
    """The weights by name, detached and in the same memory."""
    return {name: parameter.detach() for name, parameter in module.named_parameters()}


@torch.no_grad()
def take_weights_of_the_first(module: nn.Module, read: Mapping[str, torch.Tensor], ranks: Ranks) -> None:
    """Set every weight, or this rank's part of it, to what the first rank has read. Every rank calls it. A rank that is
    alone has read its own.

    Args:
        module: The model on the device that computes, whole or sharded.
        read: Weights by name: those that the first rank has read. Those of the other ranks tell only shapes and number
            formats.
        ranks: All ranks.
    """
    if ranks.world is None:
        return
    for name, parameter in module.named_parameters():
        weight = read[name].to(parameter.device) if ranks.is_first else _room_for(read[name], parameter.device)
        dist.broadcast(weight, src=0)
        if isinstance(parameter, DTensor):
            own = distribute_tensor(weight, parameter.device_mesh, parameter.placements, src_data_rank=None)
            parameter.to_local().copy_(own.to_local())
        else:
            parameter.copy_(weight)


def _room_for(weight: torch.Tensor, device: torch.device) -> torch.Tensor:
    return torch.empty_like(weight, device=device)
