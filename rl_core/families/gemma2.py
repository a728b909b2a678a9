"""Gemma 2 (arXiv:2408.00118): layers with a window and without in turn, and soft caps of scores and logits."""

from typing import Final

from rl_core.families.family import TINY_WINDOW, Family

FAMILY: Final = Family(
    name="gemma2",
    model_type="gemma2",
    ties_embeddings=True,
    tiny_text=lambda head_size: {
        "head_dim": head_size,
        "query_pre_attn_scalar": 2 * head_size,  # in Gemma 2 27B it is not the size of a head either
        "sliding_window": TINY_WINDOW,
        "attn_logit_softcapping": 5.0,
        "final_logit_softcapping": 30.0,
    },
)
