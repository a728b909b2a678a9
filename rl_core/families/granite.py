"""Granite 3 (dense): Llama's layers, with factors for embeddings, attention, what a layer adds, and logits."""

from typing import Final

from rl_core.families.family import Family

FAMILY: Final = Family(
    name="granite",
    model_type="granite",
    ties_embeddings=True,
    tiny_text=lambda head_size: {
        "embedding_multiplier": 12.0,
        "attention_multiplier": 1 / head_size,
        "residual_multiplier": 0.22,
        "logits_scaling": 8.0,
    },
)
