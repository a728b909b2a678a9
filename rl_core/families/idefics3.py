"""Idefics3 (arXiv:2408.12637) and the first SmolVLM (arXiv:2504.05299). An image is cut into square tiles, each with a
token that names its row and column, and the whole of it is one tile more.

With 27 patches a side, which SmolVLM-Instruct has, the certificate fails: vLLM rounds one of them into the place of
another, and transformers does not. The smaller ones have 32, and Idefics3 26."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from typing_extensions import override

from rl_core.families.family import Family
from rl_core.families.vision import ImageSize, MediaInputs, TinySizes, Vision, tiny_tower
from rl_core.types import Int32Array

if TYPE_CHECKING:
    import torch
    from PIL import Image
    from torch import nn
    from transformers import PreTrainedModel, PreTrainedTokenizerBase, ProcessorMixin

IMAGE, AROUND, WHOLE = "<image>", "<fake_token_around_image>", "<global-img>"
PLACES: Final = tuple(f"<row_{row}_col_{column}>" for row in range(1, 7) for column in range(1, 7))
END_OF_TURN: Final = "<end_of_utterance>"

TINY_TILE: Final = 56
TOKENS_OF_A_TINY_TILE: Final = 4  # its 16 patches, of which four become one token


@dataclass(frozen=True, kw_only=True)
class NamedTiles(Vision):
    """The vision of Idefics3."""

    tower: str = "vision_model"
    joins: tuple[str, ...] = ("connector",)
    special_tokens: tuple[str, ...] = (IMAGE, AROUND, WHOLE, *PLACES)
    id_tokens: Mapping[str, str] = field(default_factory=lambda: {"image_token_id": IMAGE})
    named_tokens: Mapping[str, str] = field(default_factory=lambda: {"end_of_utterance_token": END_OF_TURN})
    image_text: str = IMAGE

    @override
    def load_processor(self, folder: Path) -> Any:
        processor = super().load_processor(folder)
        image, tile = processor.image_processor, _tile(processor.image_processor)
        if image.size["longest_edge"] % tile:
            raise ValueError(
                f"{folder} scales images to {image.size['longest_edge']} pixels, of which its tiles of {tile} are no "
                "share: transformers then counts other tiles than it cuts; set the size of preprocessor_config.json "
                "to a multiple"
            )
        return processor

    @override
    def image_tokens(self, processor: Any, size: ImageSize, ids: Mapping[str, int]) -> Int32Array:
        columns, rows = _grid(processor.image_processor, size)
        text = processor.replace_image_token({"rows": [[rows]], "cols": [[columns]]}, 0)
        return np.array(processor.tokenizer(text, add_special_tokens=False)["input_ids"], np.int32)

    @override
    def shown_size(self, processor: Any, size: ImageSize) -> ImageSize:
        columns, rows = _grid(processor.image_processor, size)
        tile = _tile(processor.image_processor)
        return max(1, columns) * tile, max(1, rows) * tile

    @override
    def image_inputs(self, family_processor: Any, images: "Sequence[Image.Image]") -> list[MediaInputs]:
        import torch

        made = family_processor.image_processor(
            images=[[image] for image in images], do_rescale=False, do_normalize=False, do_pad=False
        )
        return [MediaInputs({"pixel_values": torch.stack(tiles)}) for tiles in made["pixel_values"]]

    @override
    def forward_inputs(
        self,
        family_processor: Any,
        images: Sequence[MediaInputs],
        videos: Sequence[MediaInputs],
        device: "torch.device",
    ) -> "dict[str, torch.Tensor]":
        """The tiles of all images, as those of one row of a batch."""
        made = super().forward_inputs(family_processor, images, videos, device)
        return {name: values[None] for name, values in made.items()}

    @override
    def prepare(self, model: "PreTrainedModel") -> None:
        """transformers places a patch by a fraction in the number format of the pixels: in bfloat16 many of 26 in a row
        come into the place of another, and vLLM counts in float32."""
        embeddings = model.base_model.get_submodule(self.tower).embeddings
        embeddings.register_forward_pre_hook(_with_exact_places, with_kwargs=True)
        embeddings.patch_embedding.register_forward_pre_hook(_in_own_format)

    @override
    def tiny_fields(self, source: TinySizes) -> dict[str, Any]:
        tower = tiny_tower(source, image_size=TINY_TILE, patch_size=self.patch_size)
        return {"vision_config": tower, "scale_factor": 2, "pad_token_id": None}

    @override
    def tiny_processor(self, tokenizer: "PreTrainedTokenizerBase") -> "ProcessorMixin":
        from transformers import Idefics3ImageProcessor, Idefics3Processor

        images = Idefics3ImageProcessor(
            size={"longest_edge": 2 * TINY_TILE}, max_image_size={"longest_edge": TINY_TILE}
        )
        return Idefics3Processor(
            image_processor=images,
            tokenizer=tokenizer,
            image_seq_len=TOKENS_OF_A_TINY_TILE,
            chat_template=tokenizer.chat_template,
        )


def _with_exact_places(
    _module: "nn.Module", args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return args, kwargs | {"pixel_values": kwargs["pixel_values"].float()}


def _in_own_format(convolution: "nn.Module", pixels: "tuple[torch.Tensor]") -> "tuple[torch.Tensor]":
    return (pixels[0].to(convolution.get_parameter("weight").dtype),)


def _tile(image_processor: Any) -> int:
    """Side of a tile in pixels."""
    side: int = image_processor.max_image_size["longest_edge"]
    return side


def _grid(image_processor: Any, size: ImageSize) -> tuple[int, int]:
    """Columns and rows of the tiles beside that of the whole image; none where it is the only one."""
    width, height = size
    _, rows, columns = image_processor.get_number_of_image_patches(height, width)
    return columns, rows


def tiny_text(head_size: int) -> dict[str, Any]:
    """Further fields of the text config of its tiny models."""
    return {"model_type": "llama", "head_dim": head_size}


FAMILY: Final = Family(name="idefics3", model_type="idefics3", vision=NamedTiles(), tiny_text=tiny_text)
