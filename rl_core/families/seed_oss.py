"""Seed-OSS: Llama's layers, with biases of queries, keys and values."""

from typing import Final

from rl_core.families.family import Family

FAMILY: Final = Family(name="seed_oss", model_type="seed_oss", tiny_text=lambda head_size: {"head_dim": head_size})
