"""What two ranks add up in tests/rl_core/distributed/test_gradient_sum.py."""

from unittest.mock import patch

import torch
import torch.distributed as dist
from torch import nn

from rl_core.distributed import collectives
from rl_core.distributed.collectives import sum_gradients
from rl_core.distributed.place import RankPlace
from rl_core.distributed.ranks import Ranks

BUCKET = 10

SHAPES = {
    "large": (3, 5),
    "matrix": (2, 3),
    "vector": (4,),
    "rounded": (6,),
    "here": (2,),
    "nowhere": (2,),
    "frozen": (1,),
}


class Parameters(nn.Module):
    """Parameters with the names and shapes of SHAPES; `rounded` is bfloat16 with a float32 gradient."""

    def __init__(self) -> None:
        super().__init__()
        for name, shape in SHAPES.items():
            self.register_parameter(name, nn.Parameter(torch.zeros(shape)))
        self.frozen.requires_grad_(False)
        self.rounded.data = self.rounded.data.bfloat16()
        self.rounded.grad_dtype = torch.float32


def gradient_of(name: str, rank: int) -> torch.Tensor | None:
    """The gradient of a parameter on a rank before they are added."""
    if name in {"nowhere", "frozen"} or (name == "here" and rank != 0):
        return None
    return (rank + 1.0) * torch.arange(1.0, 1.0 + torch.Size(SHAPES[name]).numel()).reshape(SHAPES[name]) + 1e-6


def add_up(place: RankPlace) -> tuple[dict[str, torch.Tensor | None], list[int]]:
    """The gradients afterwards, and how many numbers each exchange had."""
    ranks = Ranks.join(place, "none")
    module = Parameters()
    for name, parameter in module.named_parameters():
        parameter.grad = gradient_of(name, place.rank)
    with (
        patch.object(collectives, "BUCKET_NUMBERS", BUCKET),
        patch.object(dist, "all_reduce", wraps=dist.all_reduce) as exchanged,
    ):
        sum_gradients(module, ranks)
    ranks.close()
    numbers = [call.args[0].numel() for call in exchanged.call_args_list]
    return {name: parameter.grad for name, parameter in module.named_parameters()}, numbers
