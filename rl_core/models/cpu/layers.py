"""Layers of a model on a CPU that take the place of transformers' own.

They hold the same parameter objects under the same names, so checkpoints, sharding and adapters are not affected.
"""

from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel

from rl_core.models.cpu.attention import use_cpu_attention
from rl_core.models.cpu.rotary import use_faster_rotary


def use_cpu_layers(model: PreTrainedModel) -> None:
    """Replace attention and, in float32, RMS norms and the rotation of queries and keys."""
    use_cpu_attention(model)
    for parent in list(model.modules()):
        use_faster_rotary(parent)
        for name, child in list(parent.named_children()):
            if _is_float32_rms_norm(child):
                setattr(parent, name, RMSNorm(child.weight, eps=child.variance_epsilon))


def _is_float32_rms_norm(module: nn.Module) -> bool:
    if not type(module).__name__.endswith("RMSNorm") or not hasattr(module, "variance_epsilon"):
        return False
    return isinstance(module.weight, nn.Parameter) and module.weight.dtype == torch.float32


class RMSNorm(nn.Module):
    """x / rms(x) * weight over the last dimension (Zhang and Sennrich 2019, arXiv:1910.07467, equation 4)."""

    def __init__(self, weight: nn.Parameter, *, eps: float) -> None:
        super().__init__()
        self.weight = weight
        self.variance_epsilon = eps

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """[..., width] -> [..., width]."""
        normalised: torch.Tensor = _RMSNormFunction.apply(  # type: ignore[no-untyped-call]
            hidden, self.weight, self.variance_epsilon
        )
        return normalised


class _RMSNormFunction(torch.autograd.Function):
    """Forward and backward passes written by hand, with half the memory traffic of the plain formula under autograd."""

    @staticmethod
    def forward(ctx: Any, hidden: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
        mean_square = torch.linalg.vector_norm(hidden, dim=-1, keepdim=True).square_().div_(hidden.shape[-1])
        inverse_rms = mean_square.add_(eps).rsqrt_()
        ctx.save_for_backward(hidden, weight, inverse_rms)
        normalised: torch.Tensor = hidden * inverse_rms
        return normalised.mul_(weight)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, None]:
        hidden, weight, inverse_rms = ctx.saved_tensors
        product = (grad * hidden).flatten(0, -2)
        grad_weight = torch.mv(product.t(), inverse_rms.flatten())
        # The derivative of the norm itself: - x / (width * rms^3) * sum(grad * weight * x).
        along = torch.mv(product, weight).view_as(inverse_rms) * inverse_rms.pow(3) / -hidden.shape[-1]
        return (grad * weight).mul_(inverse_rms).addcmul_(hidden, along), grad_weight, None
