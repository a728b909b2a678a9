"""MiniCPM-V 4.6, images. An image is shown whole, and in slices of the grid that fits it best, with its number in the
prompt before it. The language model is that of Qwen3.5."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
from typing_extensions import override

from rl_core.families.family import GATED_DELTA_RULE, Family
from rl_core.families.qwen3_5 import FAMILY as QWEN3_5
from rl_core.families.vision import ImageSize, MediaInputs, TinySizes, Vision, tiny_tower
from rl_core.types import Int32Array

if TYPE_CHECKING:
    from PIL import Image
    from transformers import PreTrainedTokenizerBase, ProcessorMixin

IMAGE, VIDEO = "<|image_pad|>", "<|video_pad|>"
NAMES: Final = {
    "image_token": IMAGE,
    "video_token": VIDEO,
    "image_start_token": "<image>",
    "image_end_token": "</image>",
    "slice_start_token": "<slice>",
    "slice_end_token": "</slice>",
    "image_id_start_token": "<image_id>",
    "image_id_end_token": "</image_id>",
}

_AS_PUBLISHED: Final = {"use_image_id": True, "slice_mode": True, "downsample_mode": "16x"}
"""Settings of the processor of images."""

_TINY_SIDE: Final = 56
_TINY_SLICES: Final = 4


class _Shown(NamedTuple):
    """The sizes of the whole image and of a slice, height before width in pixels, and the rows and columns of the
    slices. An image may have none."""

    whole: tuple[int, int]
    part: tuple[int, int] = (0, 0)
    grid: tuple[int, int] = (0, 0)


@dataclass(frozen=True, kw_only=True)
class Slices(Vision):
    """The vision of MiniCPM-V 4.6."""

    tower: str = "vision_tower"
    joins: tuple[str, ...] = ("merger",)
    special_tokens: tuple[str, ...] = tuple(NAMES.values())
    id_tokens: Mapping[str, str] = field(default_factory=lambda: {"image_token_id": IMAGE, "video_token_id": VIDEO})
    named_tokens: Mapping[str, str] = field(default_factory=lambda: NAMES)
    image_text: str = IMAGE
    # The patches of all images and slices, one after the other.
    joined_along: Mapping[str, int] = field(default_factory=lambda: {"pixel_values": -1})
    read_on_cpu: tuple[str, ...] = ("target_sizes",)

    @override
    def load_processor(self, folder: Path) -> Any:
        processor = super().load_processor(folder)
        images = processor.image_processor
        other = [name for name, value in _AS_PUBLISHED.items() if getattr(images, name) != value]
        if other:
            raise ValueError(
                f"{folder} sets {other[0]} to {getattr(images, other[0])!r}, and vLLM or the trainer shows images as "
                f"with {_AS_PUBLISHED[other[0]]!r}: set it in the processor's file"
            )
        return processor

    @override
    def image_tokens(self, processor: Any, size: ImageSize, ids: Mapping[str, int]) -> Int32Array:
        """As the first image of a prompt."""
        images = processor.image_processor
        shown = _shown(images, size)
        sizes = np.array([shown.whole, *[shown.part] * math.prod(shown.grid)]) // images.patch_size
        made = {"grids": [shown.grid], "num_patches_per_image": [len(sizes)], "target_sizes": sizes}
        text = processor.replace_image_token(made, 0, image_token_divisor=processor.image_token_divisor)
        (numbered,) = processor._prepend_local_ids([IMAGE], [text], IMAGE)
        return np.array(processor.tokenizer(numbered, add_special_tokens=False)["input_ids"], np.int32)

    @override
    def joined(self, processor: Any, token_ids: Int32Array) -> Int32Array:
        """The images of a prompt are numbered."""
        tokenizer = processor.tokenizer
        (starts,) = np.nonzero(token_ids == tokenizer.image_id_start_token_id)
        (ends,) = np.nonzero(token_ids == tokenizer.image_id_end_token_id)
        pieces, done = [], 0
        for number, (start, end) in enumerate(zip(starts, ends, strict=True)):
            written = tokenizer(str(number), add_special_tokens=False)["input_ids"]
            pieces += [token_ids[done : start + 1], np.array(written, np.int32)]
            done = end
        return np.concatenate([*pieces, token_ids[done:]])

    @override
    def shown_size(self, processor: Any, size: ImageSize) -> ImageSize:
        """Of its slices together, where it has some."""
        shown = _shown(processor.image_processor, size)
        (rows, columns), (height, width) = (shown.grid, shown.part) if all(shown.grid) else ((1, 1), shown.whole)
        return width * columns, height * rows

    @override
    def image_inputs(self, family_processor: Any, images: "Sequence[Image.Image]") -> list[MediaInputs]:
        names = ("pixel_values", "target_sizes")
        each = (
            family_processor.image_processor(images=[image], do_rescale=False, do_normalize=False, return_tensors="pt")
            for image in images
        )
        return [MediaInputs({name: made[name] for name in names}) for made in each]

    @override
    def tiny_fields(self, source: TinySizes) -> dict[str, Any]:
        tower = tiny_tower(source, image_size=_TINY_SIDE, patch_size=self.patch_size)
        return {"vision_config": tower, "insert_layer_id": 0, "image_size": _TINY_SIDE}

    @override
    def tiny_processor(self, tokenizer: "PreTrainedTokenizerBase") -> "ProcessorMixin":
        from transformers import MiniCPMV4_6ImageProcessor, MiniCPMV4_6Processor, MiniCPMV4_6VideoProcessor

        sizes = {"scale_resolution": _TINY_SIDE, "max_slice_nums": _TINY_SLICES, "patch_size": self.patch_size}
        return MiniCPMV4_6Processor(
            image_processor=MiniCPMV4_6ImageProcessor(**sizes),
            tokenizer=tokenizer,
            video_processor=MiniCPMV4_6VideoProcessor(**sizes),
            chat_template=tokenizer.chat_template,
        )


def _shown(image_processor: Any, size: ImageSize) -> _Shown:
    """How the processor shows an image."""
    width, height = size
    side, patch = image_processor.scale_resolution, image_processor.patch_size
    grid = image_processor.get_sliced_grid((height, width), image_processor.max_slice_nums, side)
    if grid is None:
        return _Shown(image_processor.find_best_resize((height, width), side, patch, allow_upscale=True))
    whole = image_processor.find_best_resize((height, width), side, patch)
    refined = image_processor.get_refine_size((height, width), grid, side, patch, allow_upscale=True)
    rows, columns = grid
    return _Shown(whole, (refined[0] // rows, refined[1] // columns), (rows, columns))


FAMILY: Final = Family(
    name="minicpmv4_6",
    model_type="minicpmv4_6",
    vision=Slices(),
    ties_embeddings=True,
    tiny_text=lambda head_size: {"model_type": "qwen3_5_text", **QWEN3_5.tiny_text(head_size)},
    carries_state=True,
    engine=GATED_DELTA_RULE,
)
