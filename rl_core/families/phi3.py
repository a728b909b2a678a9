"""Phi-3 and Phi-4 (arXiv:2404.14219, arXiv:2412.08905), text: queries, keys and values are one matrix, and a part of
each head may be rotated only."""

from typing import Any, Final

from rl_core.families.family import MAX_POSITIONS, TINY_WINDOW, Family


def _text(head_size: int) -> dict[str, Any]:
    """The rotation of Phi-4-mini, which has other frequencies for texts longer than those that were first trained."""
    frequencies = 3 * head_size // 8
    rope = {
        "rope_type": "longrope",
        "rope_theta": 10_000.0,
        "partial_rotary_factor": 0.75,
        "original_max_position_embeddings": MAX_POSITIONS // 8,
        "short_factor": [1.0 + number / frequencies for number in range(frequencies)],
        "long_factor": [1.0 + 8 * number / frequencies for number in range(frequencies)],
    }
    return {
        "sliding_window": TINY_WINDOW,  # in Phi-3-mini: half of its positions
        "original_max_position_embeddings": MAX_POSITIONS // 8,
        "rope_parameters": rope,
    }


FAMILY: Final = Family(name="phi3", model_type="phi3", tiny_text=_text)
