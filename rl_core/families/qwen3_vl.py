"""Qwen3-VL, without experts (arXiv:2511.21631)."""

from typing import Any, Final

from rl_core.families.family import Family
from rl_core.families.patch_grid import PatchGrid, rope_parameters
from rl_core.families.vision import TinySizes


def _tower(source: TinySizes) -> dict[str, Any]:
    # Features of these vision blocks are added to the first layers of the language model (DeepStack).
    deep_stack = range(min(source.vision_depth - 1, source.num_layers, 3))
    return {
        "hidden_size": source.vision_hidden_size,
        "intermediate_size": 2 * source.vision_hidden_size,
        "out_hidden_size": source.hidden_size,
        "num_position_embeddings": 64,
        "deepstack_visual_indexes": list(deep_stack),
    }


def _text(head_size: int) -> dict[str, Any]:
    """A third each of the rotary frequencies of a head are for time, height and width, in turn."""
    half = head_size // 2
    third = half // 3
    rope = rope_parameters(mrope_section=[half - 2 * third, third, third], mrope_interleaved=True)
    return rope | {"head_dim": head_size}


FAMILY: Final = Family(
    name="qwen3_vl",
    model_type="qwen3_vl",
    vision=PatchGrid(
        processor="Qwen3VLProcessor",
        video_processor="Qwen3VLVideoProcessor",
        patch_size=16,
        steps="text",
        tiny_tower=_tower,
    ),
    ties_embeddings=True,
    tiny_text=_text,
    published={
        "Qwen/Qwen3-VL-4B-Instruct": {
            "model_type": "qwen3_vl",
            "tie_word_embeddings": True,
            "text_config": {
                "hidden_size": 2560,
                "intermediate_size": 9728,
                "num_hidden_layers": 36,
                "num_attention_heads": 32,
                "num_key_value_heads": 8,
                "head_dim": 128,
                "vocab_size": 151_936,
                "max_position_embeddings": 262_144,
            },
            "vision_config": {
                "depth": 24,
                "hidden_size": 1024,
                "intermediate_size": 4096,
                "out_hidden_size": 2560,
                "patch_size": 16,
                "num_position_embeddings": 2304,
                "deepstack_visual_indexes": (5, 11, 17),
            },
        },
    },
)
