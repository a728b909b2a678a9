"""Mistral Small 3.1 and 3.2. An image keeps its shape; each of its rows of tokens ends
with one that stands for the break, and the last with one that stands for the end."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from typing_extensions import override

from rl_core.families.family import Family
from rl_core.families.vision import ImageSize, MediaInputs, TinySizes, Vision, moved, tiny_tower
from rl_core.types import Int32Array

if TYPE_CHECKING:
    import torch
    from PIL import Image
    from transformers import PreTrainedTokenizerBase, ProcessorMixin

IMAGE, BREAK, END = "[IMG]", "[IMG_BREAK]", "[IMG_END]"

_TINY_SIDE: Final = 112
_MERGED: Final = 2


@dataclass(frozen=True, kw_only=True)
class Rows(Vision):
    """The vision of Mistral 3, which is Pixtral's (arXiv:2410.07073) with merged patches."""

    tower: str = "vision_tower"
    joins: tuple[str, ...] = ("multi_modal_projector",)
    special_tokens: tuple[str, ...] = (IMAGE, BREAK, END)
    id_tokens: Mapping[str, str] = field(default_factory=lambda: {"image_token_index": IMAGE})
    image_field: str = "image_token_index"
    image_text: str = IMAGE

    @override
    def image_tokens(self, processor: Any, size: ImageSize, ids: Mapping[str, int]) -> Int32Array:
        width, height = self.shown_size(processor, size)
        side = _side(processor)
        row = [ids[self.image_field]] * (width // side) + [processor.image_break_token_id]
        tokens = np.array(row * (height // side), np.int32)
        tokens[-1] = processor.image_end_token_id
        return tokens

    @override
    def shown_size(self, processor: Any, size: ImageSize) -> ImageSize:
        from transformers.models.pixtral.image_processing_pixtral import get_resize_output_image_size

        width, height = size
        longest, side = processor.image_processor.size["longest_edge"], _side(processor)
        empty = np.broadcast_to(np.uint8(0), (height, width, 3))
        height, width = get_resize_output_image_size(empty, size=(longest, longest), patch_size=(side, side))
        if not (width and height):
            raise ValueError(
                f"the processor scales images to {longest} pixels, which leaves nothing of {size[0]}x{size[1]}"
            )
        return width, height

    @override
    def image_inputs(self, family_processor: Any, images: "Sequence[Image.Image]") -> list[MediaInputs]:
        import torch

        side = _side(family_processor)
        patch = {"height": side, "width": side}
        made = family_processor.image_processor(
            images=list(images), patch_size=patch, do_rescale=False, do_normalize=False, do_pad=False
        )
        return [
            MediaInputs({"pixel_values": values[None].clone(), "image_sizes": torch.tensor([values.shape[-2:]])})
            for values in made["pixel_values"]
        ]

    @override
    def forward_inputs(
        self,
        family_processor: Any,
        images: Sequence[MediaInputs],
        videos: Sequence[MediaInputs],
        device: "torch.device",
    ) -> "dict[str, torch.Tensor]":
        """Images of one size, of which the tower takes what `image_sizes` says."""
        import torch

        if not images:
            return {}
        sizes = torch.cat([image.tensors["image_sizes"] for image in images])
        tallest, widest = sizes.amax(dim=0).tolist()
        values = torch.zeros((len(images), 3, tallest, widest), device=device)
        for place, image in zip(values, images, strict=True):
            own = self.normalised(family_processor, moved(image.tensors["pixel_values"], device))[0]
            place[:, : own.shape[1], : own.shape[2]] = own
        return {"pixel_values": values, "image_sizes": sizes}

    @override
    def tiny_fields(self, source: TinySizes) -> dict[str, Any]:
        tower = tiny_tower(source, model_type="pixtral", image_size=_TINY_SIDE, patch_size=self.patch_size)
        return {"vision_config": tower, "spatial_merge_size": _MERGED}

    @override
    def tiny_processor(self, tokenizer: "PreTrainedTokenizerBase") -> "ProcessorMixin":
        from transformers import PixtralImageProcessor, PixtralProcessor

        patch = {"height": self.patch_size, "width": self.patch_size}
        return PixtralProcessor(
            image_processor=PixtralImageProcessor(size={"longest_edge": _TINY_SIDE}, patch_size=patch),
            tokenizer=tokenizer,
            patch_size=self.patch_size,
            spatial_merge_size=_MERGED,
            chat_template=tokenizer.chat_template,
        )


def _side(processor: Any) -> int:
    """Side in pixels of what becomes one token."""
    side: int = processor.patch_size * processor.spatial_merge_size
    return side


def _text(head_size: int) -> dict[str, Any]:
    """The epsilon is that of the published models: vLLM takes it for the norm of the projector whatever the config
    says, and the difference grows with training."""
    return {"model_type": "mistral", "head_dim": head_size, "sliding_window": None, "rms_norm_eps": 1e-5}


FAMILY: Final = Family(name="mistral3", model_type="mistral3", vision=Rows(), tiny_text=_text)
