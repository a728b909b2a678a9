"""Broadcasts the weights that the first rank has read, one tensor at a time: files are read once, and the other ranks
need room for nothing but what they keep, and a tensor."""

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
def broadcast_weights(module: nn.Module, read: Mapping[str, torch.Tensor], ranks: Ranks) -> None:
    """Set every weight, or this rank's part of it, to what the first rank has read. Every rank calls it.

    Args:
        module: The model on the device that computes, whole or sharded.
        read: Weights by name; those of other ranks than the first tell only shapes and number formats.
        ranks: All ranks; one that is alone has read its own.
    """
    if ranks.world is None:
        return
    for name, parameter in module.named_parameters():
        if ranks.is_first:
            weight = read[name].to(parameter.device)
        else:
            weight = torch.empty_like(read[name], device=parameter.device)
        dist.broadcast(weight, src=0)
        if isinstance(parameter, DTensor):
            own = distribute_tensor(weight, parameter.device_mesh, parameter.placements, src_data_rank=None)
            parameter.to_local().copy_(own.to_local())
        else:
            parameter.copy_(weight)
