"""Two matrix products of vLLM that are computed in another way, each from then on, in all engines of this process."""

from typing import Final

import torch
from vllm import _custom_ops
from vllm._custom_ops import CPUDNNLGEMMHandler, onednn_mm
from vllm.model_executor.layers.logits_processor import LogitsProcessor
from vllm.model_executor.layers.vocab_parallel_embedding import UnquantizedEmbeddingMethod, VocabParallelEmbedding

from rl_core.models.replaced_layers import float32_product

_ADDED_AT_A_TIME: Final = 1024

_apply_head = LogitsProcessor._apply_head


def use_own_products() -> None:
    """Replace both."""
    _custom_ops.onednn_mm = multiply
    LogitsProcessor._apply_head = logits


def multiply(handler: CPUDNNLGEMMHandler, x: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    """[..., K] -> [..., N] as vLLM's `onednn_mm`, which computes a long single row together with a copy of it, so that
    it does not matter how many rows are multiplied.

    Of more than 1024 columns oneDNN adds up 1024 at a time, but 512 of a single row, which it takes for one of a
    transposed matrix. Otherwise it adds up the float32 columns of each row in the same order, however many there are.
    """
    is_single = x.numel() == handler.k > _ADDED_AT_A_TIME
    rows = x.reshape(1, -1).repeat(2, 1) if is_single else x
    product: torch.Tensor = onednn_mm(handler, rows, bias)
    return product[0].view(*x.shape[:-1], -1) if is_single else product


def logits(
    self: LogitsProcessor,
    lm_head: VocabParallelEmbedding,
    hidden_states: torch.Tensor,
    embedding_bias: torch.Tensor | None,
) -> torch.Tensor:
    """[K, width] -> [K, V] as `LogitsProcessor._apply_head`; float32 ones of a bfloat16 model by the trainer's own
    product. vLLM's casts the whole head for every token, and takes four times as long."""
    is_cast = self.head_dtype == torch.float32 and hidden_states.dtype == torch.bfloat16
    is_plain = isinstance(lm_head.quant_method, UnquantizedEmbeddingMethod) and embedding_bias is None
    if is_cast and is_plain:
        return float32_product(hidden_states, lm_head.weight)
    found: torch.Tensor = _apply_head(self, lm_head, hidden_states, embedding_bias)
    return found
