"""SmolLM3: Llama's layers, some of them without rotation."""

from typing import Final

from rl_core.families.family import Family

FAMILY: Final = Family(
    name="smollm3",
    model_type="smollm3",
    ties_embeddings=True,
    tiny_text=lambda _: {"no_rope_layer_interval": 2},  # published: every fourth
)
