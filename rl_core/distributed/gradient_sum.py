"""Adds up the gradients of ranks that each have all weights. FSDP2 does it for weights that are spread."""

from collections.abc import Iterator, Sequence
from typing import Final

import torch
import torch.distributed as dist
from torch import nn

from rl_core.distributed.ranks import Ranks

BUCKET_NUMBERS: Final = 1 << 24
"""Most numbers that are added in one exchange (64 MiB), but for a larger parameter."""


def sum_gradients(module: nn.Module, ranks: Ranks) -> None:
    """Replace the gradient of every trained parameter by its sum over the ranks, computed in float32. Every rank calls
    it once for an optimizer step, after its last backward pass.

    A rank without a gradient of a parameter, such as one without images, adds nothing to it. A parameter that has none
    on any rank has none afterwards. Nothing happens to a rank that is alone, and to weights that are spread.
    """
    if not ranks.add_up_gradients:
        return
    trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
    for bucket in _buckets(_with_gradient_on_a_rank(trained)):
        _sum_bucket(bucket)


def _with_gradient_on_a_rank(trained: Sequence[nn.Parameter]) -> list[nn.Parameter]:
    """The parameters of which at least one rank has a gradient; here it may be None."""
    has_one = torch.tensor([parameter.grad is not None for parameter in trained], dtype=torch.uint8)
    has_one = has_one.to(trained[0].device)
    dist.all_reduce(has_one, op=dist.ReduceOp.MAX)
    return [parameter for parameter, found in zip(trained, has_one.tolist(), strict=True) if found]


def _buckets(parameters: Sequence[nn.Parameter]) -> Iterator[list[nn.Parameter]]:
    """The parameters in order, as many together as one exchange takes."""
    bucket: list[nn.Parameter] = []
    numbers = 0
    for parameter in parameters:
        if bucket and numbers + parameter.numel() > BUCKET_NUMBERS:
            yield bucket
            bucket, numbers = [], 0
        bucket.append(parameter)
        numbers += parameter.numel()
    if bucket:
        yield bucket


def _sum_bucket(bucket: Sequence[nn.Parameter]) -> None:
    for parameter in bucket:
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter, dtype=parameter.grad_dtype)
    gradients = [parameter.grad for parameter in bucket if parameter.grad is not None]
    total = torch.cat([gradient.flatten().float() for gradient in gradients])
    dist.all_reduce(total)
    parts = torch.split(total, [gradient.numel() for gradient in gradients])
    for gradient, part in zip(gradients, parts, strict=True):
        gradient.copy_(part.view_as(gradient))
