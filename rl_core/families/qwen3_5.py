"""Qwen3.5 and Qwen3.6, without experts. Of four layers three carry a state by a gated delta rule (arXiv:2412.06464),
and one attends, with rotary positions in a part of each head and a gate on its output."""

from typing import Any, Final

from rl_core.families.family import GATED_DELTA_RULE, Family
from rl_core.families.patch_grid import PatchGrid, rope_parameters
from rl_core.families.vision import TinySizes


def _tower(source: TinySizes) -> dict[str, Any]:
    return {
        "hidden_size": source.vision_hidden_size,
        "intermediate_size": 2 * source.vision_hidden_size,
        "out_hidden_size": source.hidden_size,
        "num_position_embeddings": 64,
    }


def _text(head_size: int) -> dict[str, Any]:
    """Every second layer attends, so that two layers are enough for both kinds. Half of each head is rotated, a fourth
    each of its frequencies by height and width. As in published models the text config, too, says whether the head is
    the embedding: vLLM reads it there, and transformers outside of it."""
    head_size = max(16, head_size)
    fourth = head_size // 16
    rope = rope_parameters(
        partial_rotary_factor=0.5, mrope_section=[2 * fourth, fourth, fourth], mrope_interleaved=True
    )
    rule = {
        "full_attention_interval": 2,
        "linear_num_key_heads": 1,
        "linear_num_value_heads": 2,
        "linear_key_head_dim": _RULE_HEAD_SIZE,
        "linear_value_head_dim": _RULE_HEAD_SIZE,
    }
    return {**rope, **rule, "head_dim": head_size, "tie_word_embeddings": True}


_RULE_HEAD_SIZE: Final = 64
"""The smallest for which vLLM's kernel for a CPU is built."""


FAMILY: Final = Family(
    name="qwen3_5",
    model_type="qwen3_5",
    vision=PatchGrid(
        processor="Qwen3VLProcessor",
        video_processor="Qwen3VLVideoProcessor",
        patch_size=16,
        steps="text",
        tiny_tower=_tower,
    ),
    ties_embeddings=True,
    tiny_text=_text,
    carries_state=True,
    engine=GATED_DELTA_RULE,
)
