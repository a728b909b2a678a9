"""The models of Gemma 3 that take text alone, 270M and 1B (arXiv:2503.19786): layers with a window, which have a
rotation of their own, and without."""

from typing import Final

from rl_core.families.family import TINY_WINDOW, Family

FAMILY: Final = Family(
    name="gemma3_text",
    model_type="gemma3_text",
    ties_embeddings=True,
    tiny_text=lambda head_size: {
        "head_dim": head_size,
        "query_pre_attn_scalar": 2 * head_size,
        "sliding_window": TINY_WINDOW,
        "sliding_window_pattern": 2,  # published: every sixth layer sees all tokens
    },
)
