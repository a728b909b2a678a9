"""InternVL3 and InternVL3.5 (arXiv:2504.10479, arXiv:2508.18265), in the folders whose names end in `-HF`. An image is
cut into square tiles, with the whole of it as one more, and every tile has equally many tokens."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from typing_extensions import override

from rl_core.families.family import Family
from rl_core.families.vision import ImageSize, MediaInputs, TinySizes, Vision, tiny_tower
from rl_core.types import Int32Array

if TYPE_CHECKING:
    from PIL import Image
    from transformers import PreTrainedTokenizerBase, ProcessorMixin

START, END, IMAGE, VIDEO = "<img>", "</img>", "<IMG_CONTEXT>", "<video>"

_TINY_TILE: Final = 56
_TINY_TILES: Final = 4
_TOKENS_OF_A_TINY_TILE: Final = 4  # its 16 patches, of which four become one token


@dataclass(frozen=True, kw_only=True)
class Tiles(Vision):
    """The vision of InternVL."""

    tower: str = "vision_tower"
    joins: tuple[str, ...] = ("multi_modal_projector",)
    special_tokens: tuple[str, ...] = (START, END, IMAGE, VIDEO)
    id_tokens: Mapping[str, str] = field(default_factory=lambda: {"image_token_id": IMAGE})
    named_tokens: Mapping[str, str] = field(
        default_factory=lambda: {
            "start_image_token": START,
            "end_image_token": END,
            "context_image_token": IMAGE,
            "video_token": VIDEO,
        }
    )
    image_text: str = IMAGE

    @override
    def image_tokens(self, processor: Any, size: ImageSize, ids: Mapping[str, int]) -> Int32Array:
        columns, rows = _canvas(processor.image_processor, size)
        tiles = columns * rows + (1 if columns * rows > 1 else 0)
        places = [ids["image_token_id"]] * (tiles * processor.image_seq_length)
        return np.array([processor.start_image_token_id, *places, processor.end_image_token_id], np.int32)

    @override
    def shown_size(self, processor: Any, size: ImageSize) -> ImageSize:
        columns, rows = _canvas(processor.image_processor, size)
        tile = processor.image_processor.size
        return columns * tile["width"], rows * tile["height"]

    @override
    def image_inputs(self, family_processor: Any, images: "Sequence[Image.Image]") -> list[MediaInputs]:
        made = family_processor.image_processor(
            images=list(images), crop_to_patches=True, do_rescale=False, do_normalize=False, return_tensors="pt"
        )
        tiles = made["pixel_values"].split([int(number) for number in made["num_patches"]])
        # Copied, so that the memory of one image can be freed without that of the others.
        return [MediaInputs({"pixel_values": values.clone()}) for values in tiles]

    @override
    def tiny_fields(self, source: TinySizes) -> dict[str, Any]:
        tower = tiny_tower(source, image_size=[_TINY_TILE, _TINY_TILE], patch_size=[self.patch_size, self.patch_size])
        return {"vision_config": tower, "image_seq_length": _TOKENS_OF_A_TINY_TILE}

    @override
    def tiny_processor(self, tokenizer: "PreTrainedTokenizerBase") -> "ProcessorMixin":
        from transformers import GotOcr2ImageProcessor, InternVLProcessor, InternVLVideoProcessor

        tile = {"height": _TINY_TILE, "width": _TINY_TILE}
        images = GotOcr2ImageProcessor(size=tile, crop_to_patches=True, min_patches=1, max_patches=_TINY_TILES)
        return InternVLProcessor(
            image_processor=images,
            tokenizer=tokenizer,
            video_processor=InternVLVideoProcessor(size=tile),
            image_seq_length=_TOKENS_OF_A_TINY_TILE,
            chat_template=tokenizer.chat_template,
        )


def _canvas(image_processor: Any, size: ImageSize) -> tuple[int, int]:
    """Columns and rows of the tiles of an image."""
    from transformers.models.got_ocr2.image_processing_got_ocr2 import get_optimal_tiled_canvas

    width, height = size
    tile = image_processor.size
    canvas: tuple[int, int] = get_optimal_tiled_canvas(
        (height, width),
        (tile["height"], tile["width"]),
        image_processor.min_patches,
        image_processor.max_patches,
    )
    return canvas


FAMILY: Final = Family(
    name="internvl",
    model_type="internvl",
    vision=Tiles(),
    tiny_text=lambda head_size: {"model_type": "qwen3", "head_dim": head_size},
)
