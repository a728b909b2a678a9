"""LLaVA-OneVision (arXiv:2408.03326), images. An image is shown whole, and in tiles of the grid that fits it best, of
which each row of tokens ends with one that stands for a new line."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from typing_extensions import override

from rl_core.families.family import EngineNeeds, Family
from rl_core.families.vision import ImageSize, MediaInputs, TinySizes, Vision, tiny_tower
from rl_core.types import Int32Array

if TYPE_CHECKING:
    from PIL import Image
    from transformers import PreTrainedTokenizerBase, ProcessorMixin

IMAGE, VIDEO = "<image>", "<video>"

_TINY_TILE: Final = 56
_TINY_GRIDS: Final = [[56, 56], [56, 112], [112, 56], [112, 112]]
_TOKENS_OF_A_TINY_TILE: Final = 16


@dataclass(frozen=True, kw_only=True)
class Grids(Vision):
    """The vision of LLaVA-OneVision. Several images of a prompt are each shown as a single one is, as vLLM does;
    transformers' processor shows each of them whole alone."""

    tower: str = "vision_tower"
    joins: tuple[str, ...] = ("multi_modal_projector",)
    unused: tuple[str, ...] = ("vision_tower.post_layernorm",)
    special_tokens: tuple[str, ...] = (IMAGE, VIDEO)
    id_tokens: Mapping[str, str] = field(
        default_factory=lambda: {"image_token_index": IMAGE, "video_token_index": VIDEO}
    )
    image_field: str = "image_token_index"
    image_text: str = IMAGE
    read_on_cpu: tuple[str, ...] = ("image_sizes",)

    @override
    def image_tokens(self, processor: Any, size: ImageSize, ids: Mapping[str, int]) -> Int32Array:
        width, height = size
        (count,) = processor._get_num_multimodal_tokens(image_sizes=[(height, width)]).num_image_tokens
        return np.full(count, ids[self.image_field], np.int32)

    @override
    def shown_size(self, processor: Any, size: ImageSize) -> ImageSize:
        from transformers.image_processing_utils import select_best_resolution

        width, height = size
        grid = select_best_resolution((height, width), processor.image_processor.image_grid_pinpoints)
        return grid[1], grid[0]

    @override
    def image_inputs(self, family_processor: Any, images: "Sequence[Image.Image]") -> list[MediaInputs]:
        import torch

        made = family_processor.image_processor(images=list(images), do_rescale=False, do_normalize=False, do_pad=False)
        return [
            MediaInputs({"pixel_values": values, "image_sizes": torch.tensor([size])})
            for values, size in zip(made["pixel_values"], made["image_sizes"], strict=True)
        ]

    @override
    def tiny_fields(self, source: TinySizes) -> dict[str, Any]:
        tower = tiny_tower(
            source,
            model_type="siglip_vision_model",
            image_size=_TINY_TILE,
            patch_size=self.patch_size,
            vision_use_head=False,
        )
        return {
            "vision_config": tower,
            "vision_feature_layer": -1,
            "vision_feature_select_strategy": "full",
            "image_grid_pinpoints": _TINY_GRIDS,
        }

    @override
    def tiny_processor(self, tokenizer: "PreTrainedTokenizerBase") -> "ProcessorMixin":
        from transformers import (
            LlavaOnevisionImageProcessor,
            LlavaOnevisionProcessor,
            LlavaOnevisionVideoProcessor,
        )

        tile = {"height": _TINY_TILE, "width": _TINY_TILE}
        return LlavaOnevisionProcessor(
            image_processor=LlavaOnevisionImageProcessor(size=tile, image_grid_pinpoints=_TINY_GRIDS),
            tokenizer=tokenizer,
            video_processor=LlavaOnevisionVideoProcessor(size=tile),
            num_image_tokens=_TOKENS_OF_A_TINY_TILE,
            vision_feature_select_strategy="full",
            chat_template=tokenizer.chat_template,
        )


FAMILY: Final = Family(
    name="llava_onevision",
    model_type="llava_onevision",
    vision=Grids(),
    tiny_text=lambda head_size: {"model_type": "qwen2"},
    engine=EngineNeeds(adapters=False),
)
