"""Qwen2-VL (arXiv:2409.12191)."""

from typing import Any, Final

from rl_core.families.family import Family
from rl_core.families.patch_grid import PatchGrid, mrope_by_proportion
from rl_core.families.vision import TinySizes


def _tower(source: TinySizes) -> dict[str, Any]:
    return {"embed_dim": source.vision_hidden_size, "hidden_size": source.hidden_size, "mlp_ratio": 2}


FAMILY: Final = Family(
    name="qwen2_vl",
    model_type="qwen2_vl",
    vision=PatchGrid(
        processor="Qwen2VLProcessor",
        video_processor="Qwen2VLVideoProcessor",
        steps="consecutive",
        tiny_tower=_tower,
    ),
    ties_embeddings=True,
    tiny_text=mrope_by_proportion,
)
