"""Qwen2.5-VL (arXiv:2502.13923)."""

from typing import Any, Final

from rl_core.families.family import Family, text_fields
from rl_core.families.patch_grid import PatchGrid, mrope_by_proportion
from rl_core.families.vision import TinySizes


def _tower(source: TinySizes) -> dict[str, Any]:
    return {
        "hidden_size": source.vision_hidden_size,
        "intermediate_size": 2 * source.vision_hidden_size,
        "out_hidden_size": source.hidden_size,
        # Windowed and full attention alternate; the last block is full, as in the published models.
        "fullatt_block_indexes": list(range(source.vision_depth - 1, -1, -2))[::-1],
    }


def _published(
    hidden_size: int,
    *sizes: int,
    vision_intermediate_size: int = 3456,
    vocab_size: int = 152_064,
    **others: Any,
) -> dict[str, Any]:
    vision = {"depth": 32, "hidden_size": 1280, "patch_size": 14}
    vision |= {"intermediate_size": vision_intermediate_size, "out_hidden_size": hidden_size}
    return text_fields(
        "qwen2_5_vl",
        hidden_size,
        *sizes,
        vocab_size=vocab_size,
        positions=128_000,
        vision_config=vision,
        **others,
    )


FAMILY: Final = Family(
    name="qwen2_5_vl",
    model_type="qwen2_5_vl",
    vision=PatchGrid(
        processor="Qwen2_5_VLProcessor",
        video_processor="Qwen2VLVideoProcessor",
        steps="seconds",
        tiny_tower=_tower,
    ),
    tiny_text=mrope_by_proportion,
    published={
        "Qwen/Qwen2.5-VL-3B-Instruct": _published(
            2048, 11_008, 36, 16, 2, vision_intermediate_size=3420, vocab_size=151_936, tied=True
        ),
        "Qwen/Qwen2.5-VL-7B-Instruct": _published(3584, 18_944, 28, 28, 4, vision_intermediate_size=3420),
        "Qwen/Qwen2.5-VL-32B-Instruct": _published(5120, 27_648, 64, 40, 8),
        "Qwen/Qwen2.5-VL-72B-Instruct": _published(8192, 29_568, 80, 64, 8),
    },
)
