"""Qwen3.5 and Qwen3.6 with experts."""

from typing import Any, Final

from rl_core.families.family import GATED_DELTA_RULE, Family
from rl_core.families.qwen3_5 import FAMILY as WITHOUT_EXPERTS


def _text(head_size: int) -> dict[str, Any]:
    """As in published models every layer has experts, and one that every token goes through."""
    experts = {
        "num_experts": 8,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 64,
        "shared_expert_intermediate_size": 64,
    }
    return {**WITHOUT_EXPERTS.tiny_text(head_size), "tie_word_embeddings": False, **experts}


FAMILY: Final = Family(
    name="qwen3_5_moe",
    model_type="qwen3_5_moe",
    vision=WITHOUT_EXPERTS.vision,
    tiny_text=_text,
    carries_state=True,
    engine=GATED_DELTA_RULE,
)
