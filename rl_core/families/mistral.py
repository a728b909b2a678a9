"""Mistral (arXiv:2310.06825): Llama's layers, each of which may see a window of tokens only."""

from typing import Final

from rl_core.families.family import TINY_WINDOW, Family

FAMILY: Final = Family(
    name="mistral",
    model_type="mistral",
    tiny_text=lambda head_size: {"head_dim": head_size, "sliding_window": TINY_WINDOW},
)
