"""Layers that take the place of transformers' own. They hold the same parameter objects under the same names, so that
checkpoints, tied weights, sharding and adapters are not affected."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import torch
from torch import nn
from transformers import PreTrainedModel

_PART: Final = 4096
"""Words of the vocabulary whose weights are copied at a time."""


def use_patch_projections(model: PreTrainedModel) -> None:
    """Replace the patch embedding of the vision tower, if there is one."""
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, nn.Conv3d) and _takes_patches(child):
                setattr(parent, name, PatchProjection(child))


def _takes_patches(convolution: nn.Conv3d) -> bool:
    """Whether the kernel goes from patch to patch, and sees all of each."""
    plain = (convolution.padding, convolution.dilation, convolution.groups) == ((0, 0, 0), (1, 1, 1), 1)
    return plain and convolution.stride == convolution.kernel_size


def use_float32_logits(model: PreTrainedModel) -> None:
    """Replace the output head of a bfloat16 model.

    A logit of 20 is rounded to bfloat16 by up to 0.06. Generator and trainer add the products of bfloat16 hidden states
    and weights, which are exact in float32, and keep the float32 sums (vLLM: `head_dtype`). With logits of that size
    their log-probs then differ by a fifth less in the mean, and by a third less at the 99.9th percentile.
    """
    head = model.get_output_embeddings()
    if isinstance(head, nn.Linear) and [weight.dtype for weight in head.parameters()] == [torch.bfloat16]:
        model.set_output_embeddings(Float32Head(head.get_parameter("weight")))


class PatchProjection(nn.Module):
    """A convolution whose kernel covers the whole input, computed as a matrix product, which is several times faster
    than in convolution backends."""

    def __init__(self, convolution: nn.Conv3d) -> None:
        super().__init__()
        self.weight = convolution.weight
        self.bias = convolution.bias

    def forward(self, patches: torch.Tensor) -> torch.Tensor:
        """[N, channels, time, height, width] -> [N, features, 1, 1, 1] where the size is that of the kernel, and else
        as the convolution, by itself."""
        kernel = self.weight.shape[2:]
        if patches.shape[2:] != kernel:
            return nn.functional.conv3d(patches, self.weight, self.bias, stride=kernel)
        features = nn.functional.linear(patches.flatten(1), self.weight.flatten(1), self.bias)
        return features[:, :, None, None, None]


class Float32Head(nn.Module):
    """A linear layer without bias: bfloat16 in, float32 out."""

    def __init__(self, weight: nn.Parameter) -> None:
        super().__init__()
        self.weight = weight

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """[..., width] bfloat16 -> [..., V] float32."""
        logits: torch.Tensor = _Float32Product.apply(  # type: ignore[no-untyped-call]
            hidden.flatten(0, -2), self.weight
        )
        # Not as a view where none is needed: a bias that is added in place to a view costs a copy of the gradient.
        return logits if hidden.ndim == 2 else logits.view(*hidden.shape[:-1], -1)


def float32_product(hidden: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """[K, width] and [V, width] bfloat16 -> [K, V] float32 hidden @ weight.T.

    Only CUDA has this product. On a CPU float32 copies are multiplied, and oneDNN may round their numbers to bfloat16,
    which they are already, for the processor's bfloat16 units. The weight is copied in parts that stay in its caches.
    """
    if hidden.is_cuda:
        return torch.mm(hidden, weight.t(), out_dtype=torch.float32)
    rows, product = hidden.float(), torch.empty(len(hidden), len(weight))
    with _bfloat16_units():
        for part, place in zip(torch.split(weight, _PART), torch.split(product, _PART, dim=1), strict=True):
            place.copy_(torch.mm(rows, part.float().t()))
    return product


@contextmanager
def _bfloat16_units() -> Iterator[None]:
    """Let oneDNN round the numbers of float32 products to bfloat16; it adds in float32 all the same."""
    products = torch.backends.mkldnn.matmul  # type: ignore[attr-defined]  # set by torch in place of the module
    before, products.fp32_precision = products.fp32_precision, "bf16"
    try:
        yield
    finally:
        products.fp32_precision = before


class _Float32Product(torch.autograd.Function):
    """hidden @ weight.T in float32. The gradient of the logits is rounded to bfloat16, as an ordinary layer's is."""

    @staticmethod
    def forward(ctx: Any, hidden: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(hidden, weight)
        return float32_product(hidden, weight)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, torch.Tensor | None]:
        hidden, weight = ctx.saved_tensors
        of_hidden, of_weight = ctx.needs_input_grad
        rounded = grad.to(hidden.dtype)
        return rounded @ weight if of_hidden else None, rounded.t() @ hidden if of_weight else None
