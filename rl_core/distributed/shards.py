"""The shards of a module's weights: how to come from them to whole tensors, and from a tensor to its local part."""

from collections.abc import Callable, Iterator
from typing import cast

import torch
from torch import nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor


def sharded_parts(module: nn.Module) -> Iterator[FSDPModule]:
    """The parts of a module that are gathered each on its own; none if the module is not sharded."""
    return (part for part in module.modules() if isinstance(part, FSDPModule))


def reshard(module: nn.Module) -> None:
    """Free what the last pass has gathered, so that the parameters are the shards again."""
    for part in sharded_parts(module):
        part.reshard()


def stored_weights(module: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """All parameters and then all buffers that belong into the files of a model, which no optimizer moves: the scalars
    of Gemma 4's layers, the biases by which DeepSeek's tokens choose experts."""
    yield from module.named_parameters()
    for prefix, part in module.named_modules():
        for name, buffer in part.named_buffers(recurse=False):
            if name not in part._non_persistent_buffers_set:
                yield f"{prefix}.{name}" if prefix else name, buffer


def whole(tensor: torch.Tensor, *, dtype: torch.dtype | None = None) -> torch.Tensor:
    """A tensor as a whole, detached; one that is not sharded as it is. Every rank calls it, in the same order. With
    `dtype` a sharded tensor is cast before it is gathered."""
    found = tensor.detach()
    if not isinstance(found, DTensor):
        return found
    return cast(DTensor, found if dtype is None else found.to(dtype)).full_tensor()


def local_part(tensor: torch.Tensor) -> torch.Tensor:
    """What this rank has of a sharded tensor, detached and in the same memory; any other tensor as it is, detached."""
    found = tensor.detach()
    return found.to_local() if isinstance(found, DTensor) else found


def by_part(function: Callable[..., torch.Tensor], *tensors: torch.Tensor) -> torch.Tensor:
    """`function(*tensors)` for a function that works number by number: of sharded tensors, part by part. The result is
    sharded like the first tensor, and on its device."""
    first = tensors[0]
    result = function(*map(local_part, tensors))
    if not isinstance(first, DTensor):
        return result
    return DTensor.from_local(
        result, first.device_mesh, first.placements, run_check=False, shape=first.shape, stride=first.stride()
    )
