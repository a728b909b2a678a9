"""Qwen3, text, without experts (arXiv:2505.09388)."""

from typing import Final

from rl_core.families.family import Family
from rl_core.families.patch_grid import SPECIAL_TOKENS

FAMILY: Final = Family(
    name="qwen3",
    model_type="qwen3",
    ties_embeddings=True,
    tiny_text=lambda head_size: {"head_dim": head_size},
    unused_tokens=SPECIAL_TOKENS,
)
