"""Llama 3 (arXiv:2407.21783), and models of its layers such as SmolLM2."""

from typing import Final

from rl_core.families.family import Family

FAMILY: Final = Family(name="llama", model_type="llama")
