"""A row times a matrix by the code for several rows, so that it does not matter how many rows are multiplied.

Of more than 1024 columns oneDNN adds up 1024 at a time, but 512 of a single row, which it takes for one of a transposed
matrix. Otherwise it adds up the float32 columns of each row in the same order, however many rows there are.
"""

from typing import Final

import torch
from vllm import _custom_ops
from vllm._custom_ops import CPUDNNLGEMMHandler, onednn_mm

_ADDED_AT_A_TIME: Final = 1024


def multiply(handler: CPUDNNLGEMMHandler, x: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    """[..., K] -> [..., N] as vLLM's `onednn_mm`, which computes a long single row together with a copy of it."""
    is_single = x.numel() == handler.k > _ADDED_AT_A_TIME
    rows = x.reshape(1, -1).repeat(2, 1) if is_single else x
    product: torch.Tensor = onednn_mm(handler, rows, bias)
    return product[0].view(*x.shape[:-1], -1) if is_single else product


def use_code_for_several_rows() -> None:
    """From now on, in all layers of all engines of this process."""
    _custom_ops.onednn_mm = multiply
