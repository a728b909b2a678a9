"""Adds up the gradients of replicas: ranks that have the same weights, or the same part of them. FSDP2 adds up those of
the ranks over which one replica is spread, in each backward pass; these sums are added here once for an optimizer step.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import torch
import torch.distributed as dist
from torch import nn

from rl_core.distributed.ranks import Ranks
from rl_core.distributed.shards import local_part

BUCKET_NUMBERS: Final = 1 << 24
"""Most numbers that are added in one exchange (64 MiB), but for a larger parameter."""


def sum_gradients(module: nn.Module, ranks: Ranks) -> None:
    """Replace the gradient of every trained parameter, or this rank's part of it, by its sum over the replicas. It is
    computed in float32. Every rank calls it once for an optimizer step, after its last backward pass.

    A replica without a gradient of a parameter, such as one without images, adds nothing to it. A parameter that has
    none on any replica has none afterwards. Nothing happens where there is one replica.
    """
    group = ranks.replicas
    if group is None:
        return
    trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
    for bucket in _buckets(_with_gradient_on_a_replica(trained, group)):
        _sum_bucket(bucket, group)


def _with_gradient_on_a_replica(trained: Sequence[nn.Parameter], group: dist.ProcessGroup) -> list[nn.Parameter]:
    """The parameters of which at least one replica has a gradient; here it may be None."""
    has_one = torch.tensor([parameter.grad is not None for parameter in trained], dtype=torch.uint8)
    has_one = has_one.to(trained[0].device)
    dist.all_reduce(has_one, op=dist.ReduceOp.MAX, group=group)
    return [parameter for parameter, found in zip(trained, has_one.tolist(), strict=True) if found]


def _buckets(parameters: Sequence[nn.Parameter]) -> Iterator[list[nn.Parameter]]:
    """The parameters in order, as many together as one exchange takes."""
    bucket: list[nn.Parameter] = []
    numbers = 0
    for parameter in parameters:
        more = local_part(parameter).numel()
        if bucket and numbers + more > BUCKET_NUMBERS:
            yield bucket
            bucket, numbers = [], 0
        bucket.append(parameter)
        numbers += more
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
