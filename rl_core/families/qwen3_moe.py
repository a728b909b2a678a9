"""Qwen3 with experts, text (arXiv:2505.09388)."""

from typing import Any, Final

from rl_core.families.family import Family, text_fields
from rl_core.families.patch_grid import SPECIAL_TOKENS


def _text(head_size: int) -> dict[str, Any]:
    """As in published models every layer has experts, and a token goes through several, whose weights add up to 1."""
    return {
        "head_dim": head_size,
        "num_experts": 8,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 64,
        "norm_topk_prob": True,
    }


FAMILY: Final = Family(
    name="qwen3_moe",
    model_type="qwen3_moe",
    tiny_text=_text,
    unused_tokens=SPECIAL_TOKENS,
    published={
        "Qwen/Qwen3-30B-A3B": text_fields(
            "qwen3_moe",
            2048,
            6144,
            48,
            32,
            4,
            vocab_size=151_936,
            positions=40_960,
            head_dim=128,
            num_experts=128,
            num_experts_per_tok=8,
            moe_intermediate_size=768,
            norm_topk_prob=True,
        )
    },
)
