"""The language models of Ministral 3 alone: Mistral's layers, with queries that grow with their position."""

from typing import Any, Final

from rl_core.families.family import MAX_POSITIONS, Family


def _text(head_size: int) -> dict[str, Any]:
    """The published rotation, whose queries grow each time that so many positions have passed as were first trained."""
    rope = {
        "rope_type": "yarn",
        "rope_theta": 1e6,
        "factor": 16.0,
        "original_max_position_embeddings": MAX_POSITIONS // 16,
        "beta_fast": 32.0,
        "beta_slow": 1.0,
        "mscale": 1.0,
        "mscale_all_dim": 1.0,
        "llama_4_scaling_beta": 0.1,
    }
    return {"head_dim": head_size, "rope_parameters": rope}


FAMILY: Final = Family(name="ministral3", model_type="ministral3", tiny_text=_text)
