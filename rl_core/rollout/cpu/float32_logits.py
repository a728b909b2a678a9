"""The float32 logits of a bfloat16 model, by the trainer's own product. vLLM's casts the whole head for every token,
and takes four times as long."""

import torch
from vllm.model_executor.layers.logits_processor import LogitsProcessor
from vllm.model_executor.layers.vocab_parallel_embedding import UnquantizedEmbeddingMethod, VocabParallelEmbedding

from rl_core.models.replaced_layers import float32_product

_apply_head = LogitsProcessor._apply_head


def logits(
    self: LogitsProcessor,
    lm_head: VocabParallelEmbedding,
    hidden_states: torch.Tensor,
    embedding_bias: torch.Tensor | None,
) -> torch.Tensor:
    """[K, width] -> [K, V] as `LogitsProcessor._apply_head`."""
    is_cast = self.head_dtype == torch.float32 and hidden_states.dtype == torch.bfloat16
    is_plain = isinstance(lm_head.quant_method, UnquantizedEmbeddingMethod) and embedding_bias is None
    if is_cast and is_plain:
        return float32_product(hidden_states, lm_head.weight)
    found: torch.Tensor = _apply_head(self, lm_head, hidden_states, embedding_bias)
    return found


def use_float32_product() -> None:
    """From now on, in all engines of this process."""
    LogitsProcessor._apply_head = logits
