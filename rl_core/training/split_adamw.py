"""AdamW for bfloat16 weights that loses no update, however small.

A float32 master weight is split into a bfloat16 weight and the 16 bits that rounding cuts off. bfloat16 is the upper
half of a float32. If the weight is rounded to nearest, the lower half, read as a signed integer and added to the
weight's bits, restores the number exactly (Split-SGD-BF16 of Kalamkar et al. 2020, arXiv:2005.04680, section 5, with
rounding in place of truncation). It takes as much memory as Kahan summation in bfloat16, which loses updates below
2^-17 of the weight: at a learning rate of 1e-6, every update of a weight above 0.1.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final

import torch
from torch.optim.adamw import adamw

from rl_core.distributed.shards import local_part
from rl_core.training.host_memory import empty_on_host

PIECE: Final = 1 << 24
"""Most numbers of a parameter that are updated at a time. An update makes up to eight float32 tensors of this size
(512 MiB), where the embedding of a large vocabulary as a whole would need gigabytes. A multiple of every processor's
vectors, so that no number is computed otherwise than in a whole parameter."""


class SplitAdamW(torch.optim.Optimizer):
    """AdamW (Loshchilov and Hutter 2019, arXiv:1711.05101) computed in float32 on split weights.

    With float32 moments, a step equals to the bit a step of torch's AdamW on a float32 copy of the weights. The second
    moment is always float32: in bfloat16 a decay of 0.999 would be rounded away, and the moment could only grow.
    float32 parameters are updated as by torch's AdamW. Moments and lower bits may lie in the host's memory; a step then
    brings them to the parameter's device piece by piece. Of sharded parameters, each rank updates its part.

    Attributes:
        lower_bits: Parameter -> [...] int16 of every bfloat16 parameter: the lower half of its float32 master weight.
    """

    def __init__(
        self,
        params: Iterable[torch.Tensor] | Iterable[dict[str, Any]],
        *,
        lr: float,
        betas: tuple[float, float],
        eps: float,
        first_moment: torch.dtype,
        in_host_memory: bool = False,
    ) -> None:
        """`first_moment` is the number format of the first moment of bfloat16 parameters."""
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": 0.0})
        self._first_moment = first_moment
        self.in_host_memory = in_host_memory
        self.lower_bits: dict[torch.Tensor, torch.Tensor] = {
            parameter: self._zeros(parameter, torch.int16)
            for group in self.param_groups
            for parameter in group["params"]
            if parameter.dtype == torch.bfloat16
        }

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """`closure` belongs to torch's signature and must be None."""
        assert closure is None, "the loss is not evaluated again"
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._update(parameter, group)

    def take_lower_bits(self, parameter: torch.Tensor, lower: torch.Tensor) -> None:
        """Set the lower bits of a parameter, [...] int16 on any device, sharded as the parameter is."""
        local_part(self.lower_bits[parameter]).copy_(local_part(lower))

    def _update(self, parameter: torch.Tensor, group: dict[str, Any]) -> None:
        state = self.state[parameter] or self._start(parameter)
        assert parameter.grad is not None, "parameters without a gradient are left out"
        tensors = [parameter, parameter.grad, state["exp_avg"], state["exp_avg_sq"]]
        if parameter in self.lower_bits:
            tensors.append(self.lower_bits[parameter])
        tensors = [local_part(tensor) for tensor in tensors]
        if tensors[0].numel() <= PIECE:
            _update_piece(*tensors, step=state["step"], group=group)
            return
        before = state["step"].clone()
        for piece in zip(*(torch.split(tensor.reshape(-1), PIECE) for tensor in tensors), strict=True):
            _update_piece(*piece, step=state["step"].copy_(before), group=group)

    def _start(self, parameter: torch.Tensor) -> dict[str, torch.Tensor]:
        first_moment = self._first_moment if parameter in self.lower_bits else parameter.dtype
        state = {
            "step": torch.zeros((), dtype=torch.float32, device=parameter.device),
            "exp_avg": self._zeros(parameter, first_moment),
            "exp_avg_sq": self._zeros(parameter, torch.float32),
        }
        self.state[parameter] = state
        return state

    def _zeros(self, parameter: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        if self.in_host_memory:
            return empty_on_host(parameter, dtype=dtype).zero_()
        return torch.zeros_like(parameter, dtype=dtype, requires_grad=False)


def _update_piece(
    weight: torch.Tensor,
    gradient: torch.Tensor,
    first_moment: torch.Tensor,
    second_moment: torch.Tensor,
    lower: torch.Tensor | None = None,
    *,
    step: torch.Tensor,
    group: dict[str, Any],
) -> None:
    """Update a parameter, or a piece of one, and its state in place. `lower` is given for bfloat16 weights."""
    device = weight.device
    number = weight if lower is None else join(weight, lower.to(device))
    exp_avg, exp_avg_sq = first_moment.to(device, torch.float32), second_moment.to(device)
    beta1, beta2 = group["betas"]
    adamw(
        [number],
        [gradient.float()],
        [exp_avg],
        [exp_avg_sq],
        [],
        [step],
        fused=True,
        amsgrad=False,
        beta1=beta1,
        beta2=beta2,
        lr=group["lr"],
        weight_decay=group["weight_decay"],
        eps=group["eps"],
        maximize=False,
    )
    first_moment.copy_(exp_avg)
    second_moment.copy_(exp_avg_sq)
    if lower is not None:
        upper, rest = split(number)
        weight.copy_(upper)
        lower.copy_(rest)


def join(weight: torch.Tensor, lower: torch.Tensor) -> torch.Tensor:
    """[...] bfloat16 and [...] int16 -> [...] float32, the numbers that `split` has split."""
    bits = weight.view(torch.int16).to(torch.int32) * 65536 + lower
    return bits.view(torch.float32)


def split(number: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """[...] float32 -> [...] bfloat16, rounded to nearest (ties away from zero), and [...] int16, the lower bits."""
    bits = number.view(torch.int32)
    lower = bits.to(torch.int16)  # the lower half as a signed integer: negative if the upper half is rounded up
    upper = ((bits - lower) >> 16).to(torch.int16)
    return upper.view(torch.bfloat16), lower
