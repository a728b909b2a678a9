"""Qwen3-VL with experts (arXiv:2511.21631)."""

from typing import Any, Final

from rl_core.families.family import Family
from rl_core.families.qwen3_vl import FAMILY as WITHOUT_EXPERTS


def _text(head_size: int) -> dict[str, Any]:
    """transformers knows by the shape of a weight whether it is as in published files, so no expert may be square:
    the hidden size is neither 160 nor 320."""
    experts = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 160, "norm_topk_prob": True}
    return {**WITHOUT_EXPERTS.tiny_text(head_size), **experts}


FAMILY: Final = Family(name="qwen3_vl_moe", model_type="qwen3_vl_moe", vision=WITHOUT_EXPERTS.vision, tiny_text=_text)
