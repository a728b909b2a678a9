"""The logits of a bfloat16 model's float32 head on a CPU are vLLM's own, up to the order of sums."""

from types import SimpleNamespace

import pytest
import torch
from vllm.model_executor.layers.vocab_parallel_embedding import UnquantizedEmbeddingMethod

from rl_core.rollout.cpu import float32_logits


@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("rows", [1, 7])
def test_the_logits_are_those_of_vllm(rows, has_bias):
    generator = torch.Generator().manual_seed(rows)
    hidden, weight = (torch.randn(count, 64, generator=generator).bfloat16() for count in (rows, 5001))
    bias = torch.randn(5001, generator=generator).bfloat16() if has_bias else None
    processor = SimpleNamespace(head_dtype=torch.float32)
    head = SimpleNamespace(quant_method=UnquantizedEmbeddingMethod(), weight=weight)
    found = float32_logits.logits(processor, head, hidden, bias)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, float32_logits._apply_head(processor, head, hidden, bias), rtol=1e-5, atol=1e-5)
