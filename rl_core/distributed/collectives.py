"""What ranks exchange of a model: the weights that the first of them has read, and in every optimizer step the sums of
their gradients."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeVar

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor, distribute_tensor

from rl_core.distributed.ranks import Ranks
from rl_core.distributed.shards import local_part, stored_weights

Item = TypeVar("Item")

BUCKET_NUMBERS: Final = 1 << 24
"""Most numbers that are added in one exchange (64 MiB), but for a larger parameter."""


def weights_of(module: nn.Module) -> dict[str, torch.Tensor]:
    """What the files of a model hold by name, detached and in the same memory."""
    return {name: weight.detach() for name, weight in stored_weights(module)}


@torch.no_grad()
def broadcast_weights(module: nn.Module, read: Mapping[str, torch.Tensor], ranks: Ranks) -> None:
    """Set every weight, or this rank's part of it, to what the first rank has read; what the others have `read` gives
    only shapes and number formats. Every rank calls it."""
    if ranks.objects is None:
        return
    for name, place in stored_weights(module):
        known = read[name]
        weight = known.to(place.device) if ranks.is_first else torch.empty_like(known, device=place.device)
        dist.broadcast(weight, src=0)
        if isinstance(place, DTensor):
            own = distribute_tensor(weight, place.device_mesh, place.placements, src_data_rank=None)
            place.to_local().copy_(own.to_local())
        else:
            place.copy_(weight)


def sum_gradients(module: nn.Module, ranks: Ranks) -> None:
    """Replace the gradient of every trained parameter, or this rank's part of it, by its sum over the replicas,
    computed in float32. Every rank calls it once for an optimizer step, after its last backward pass. A replica without
    a gradient of a parameter, such as one without images, adds nothing to it."""
    group = ranks.replicas
    if group is None:
        return
    trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
    summed = _with_gradient_on_a_replica(trained, group)
    for bucket in buckets(summed, size_of=lambda parameter: local_part(parameter).numel(), most=BUCKET_NUMBERS):
        _sum_bucket(bucket, group)


def _with_gradient_on_a_replica(trained: Sequence[nn.Parameter], group: dist.ProcessGroup) -> list[nn.Parameter]:
    """The parameters of which at least one replica has a gradient; here it may be None."""
    has_one = torch.tensor([parameter.grad is not None for parameter in trained], dtype=torch.uint8)
    has_one = has_one.to(trained[0].device)
    dist.all_reduce(has_one, op=dist.ReduceOp.MAX, group=group)
    return [parameter for parameter, found in zip(trained, has_one.tolist(), strict=True) if found]


def buckets(items: Iterable[Item], *, size_of: Callable[[Item], int], most: int) -> Iterator[list[Item]]:
    """The items in their order, in buckets of together up to `most`; a larger item is a bucket of its own."""
    bucket: list[Item] = []
    size = 0
    for item in items:
        more = size_of(item)
        if bucket and size + more > most:
            yield bucket
            bucket, size = [], 0
        bucket.append(item)
        size += more
    if bucket:
        yield bucket


def _sum_bucket(bucket: Sequence[nn.Parameter], group: dist.ProcessGroup) -> None:
    for parameter in bucket:
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter, dtype=parameter.grad_dtype)
    gradients = [local_part(parameter.grad) for parameter in bucket if parameter.grad is not None]
    total = torch.cat([gradient.flatten().float() for gradient in gradients])
    dist.all_reduce(total, group=group)
    parts = torch.split(total, [gradient.numel() for gradient in gradients])
    for gradient, part in zip(gradients, parts, strict=True):
        gradient.copy_(part.view_as(gradient))
