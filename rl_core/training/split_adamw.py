"""AdamW for bfloat16 weights that loses no update, however small.

A float32 master weight is split into a bfloat16 weight and the 16 bits that rounding cuts off. bfloat16 is the upper
half of a float32. If the weight is rounded to nearest, the lower half, read as a signed integer and added to the
weight's bits, restores the number exactly (Split-SGD-BF16 of Kalamkar et al. 2020, arXiv:2005.04680, section 5, with
rounding in place of truncation). It takes as much memory as Kahan summation in bfloat16, which loses updates below
2^-17 of the weight: at a learning rate of 1e-6, every update of a weight above 0.1.
"""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.optim.adamw import adamw


class SplitAdamW(torch.optim.Optimizer):
    """AdamW (Loshchilov and Hutter 2019, arXiv:1711.05101) computed in float32 on split weights.

    The weights themselves stay bfloat16; `lower_bits` holds the lower half of each float32 master weight. With float32
    moments, a step equals to the bit a step of torch's AdamW on a float32 copy of the weights. The second moment is
    always float32: in bfloat16 a decay of 0.999 would be rounded away, and the moment could only grow. float32
    parameters are updated as by torch's AdamW.
    """

    def __init__(
        self,
        params: Iterable[torch.Tensor] | Iterable[dict[str, Any]],
        *,
        lr: float,
        betas: tuple[float, float],
        eps: float,
        first_moment: torch.dtype,
    ) -> None:
        """Take bfloat16 and float32 parameters, or parameter groups with a `weight_decay` each.

        Args:
            params: As for torch's optimizers; gradients may be bfloat16 or float32.
            lr: Learning rate.
            betas: Decay rates of the moments.
            eps: Floor of the denominator.
            first_moment: Number format of the first moment of bfloat16 parameters.
        """
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": 0.0})
        self._first_moment = first_moment
        self.lower_bits: dict[torch.Tensor, torch.Tensor] = {
            parameter: torch.zeros_like(parameter, dtype=torch.int16, requires_grad=False)
            for group in self.param_groups
            for parameter in group["params"]
            if parameter.dtype == torch.bfloat16
        }

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Update every parameter that has a gradient. `closure` belongs to torch's signature and must be None."""
        assert closure is None, "the loss is not evaluated again"
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._update(parameter, group)

    def _update(self, parameter: torch.Tensor, group: dict[str, Any]) -> None:
        state = self.state[parameter] or self._start(parameter)
        number = join(parameter, self.lower_bits[parameter]) if parameter in self.lower_bits else parameter
        exp_avg = state["exp_avg"].float()
        beta1, beta2 = group["betas"]
        adamw(
            [number],
            [parameter.grad.float()],  # type: ignore[union-attr]
            [exp_avg],
            [state["exp_avg_sq"]],
            [],
            [state["step"]],
            fused=True,
            amsgrad=False,
            beta1=beta1,
            beta2=beta2,
            lr=group["lr"],
            weight_decay=group["weight_decay"],
            eps=group["eps"],
            maximize=False,
        )
        state["exp_avg"].copy_(exp_avg)
        if parameter in self.lower_bits:
            weight, self.lower_bits[parameter] = split(number)
            parameter.copy_(weight)

    def _start(self, parameter: torch.Tensor) -> dict[str, torch.Tensor]:
        state = {
            "step": torch.zeros((), dtype=torch.float32, device=parameter.device),
            "exp_avg": torch.zeros_like(parameter, dtype=self._first_moment if parameter in self.lower_bits else None),
            "exp_avg_sq": torch.zeros_like(parameter, dtype=torch.float32),
        }
        self.state[parameter] = state
        return state


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
