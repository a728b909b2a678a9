"""Qwen2 and Qwen2.5, text (arXiv:2412.15115)."""

from typing import Final

from rl_core.families.family import Family, text_fields
from rl_core.families.patch_grid import SPECIAL_TOKENS

FAMILY: Final = Family(
    name="qwen2_5",
    model_type="qwen2",
    ties_embeddings=True,
    unused_tokens=SPECIAL_TOKENS,
    published={
        "Qwen/Qwen2.5-7B-Instruct": text_fields("qwen2", 3584, 18_944, 28, 28, 4, vocab_size=152_064, positions=32_768),
        "Qwen/Qwen2.5-1.5B-Instruct": text_fields(
            "qwen2", 1536, 8960, 28, 12, 2, vocab_size=151_936, positions=32_768, tied=True
        ),
    },
)
