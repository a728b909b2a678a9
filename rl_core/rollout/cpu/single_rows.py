"""A row times a matrix by the code for several rows, so that it does not matter how many rows are multiplied.

oneDNN takes a single row for one of a transposed matrix, and adds up half as many of its columns at a time, where there
are more than 1024. For all other numbers of rows it adds up the float32 columns of each in the same order.
"""

import torch
from vllm import _custom_ops
from vllm._custom_ops import CPUDNNLGEMMHandler, onednn_mm


def multiply(handler: CPUDNNLGEMMHandler, x: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    """[..., K] -> [..., N] as vLLM's `onednn_mm`, which computes a single row together with a copy of it."""
    is_single = x.numel() == x.shape[-1]
    rows = x.reshape(1, -1).repeat(2, 1) if is_single else x
    product: torch.Tensor = onednn_mm(handler, rows, bias)
    return product[0].view(*x.shape[:-1], -1) if is_single else product


def use_code_for_several_rows() -> None:
    """From now on, in all layers of all engines of this process."""
    _custom_ops.onednn_mm = multiply
