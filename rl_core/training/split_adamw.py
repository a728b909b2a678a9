"""AdamW that loses no update of a bfloat16 weight, however small."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.optim.adamw import adamw

from rl_core.training.split_weights import join, split


class SplitAdamW(torch.optim.Optimizer):
    """AdamW (Loshchilov and Hutter 2019, arXiv:1711.05101) computed in float32 on split weights.

    The weights themselves stay bfloat16; `lower_bits` has what each cuts off of its float32 number. With float32
    moments a step is that of torch's AdamW on a float32 copy of the weights, to the bit. The second moment is float32
    always: in bfloat16 a decay of 0.999 would round away, and it could only grow. float32 parameters among the others
    are moved as torch's AdamW moves them.
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
        """Take bfloat16 and float32 parameters, or groups of them with a `weight_decay` each.

        Args:
            params: As torch's optimizers take them; gradients may be bfloat16 or float32.
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
        """Move every parameter that has a gradient. `closure` is torch's signature and must be None."""
        assert closure is None, "the loss is not evaluated again"
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._move(parameter, group)

    def _move(self, parameter: torch.Tensor, group: dict[str, Any]) -> None:
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
