"""Gemma 3 with images (arXiv:2503.19786), 4B to 27B. An image of any shape becomes a square with equally many tokens,
which see each other in the language model, the later ones too."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from typing_extensions import override

from rl_core.families.family import Family
from rl_core.families.gemma3_text import FAMILY as TEXT
from rl_core.families.vision import ImageSize, MediaInputs, TinySizes, Vision, tiny_tower
from rl_core.types import Int32Array

if TYPE_CHECKING:
    from PIL import Image
    from transformers import PreTrainedModel, PreTrainedTokenizerBase, ProcessorMixin

START, END, IMAGE = "<start_of_image>", "<end_of_image>", "<image_soft_token>"
NEWLINES: Final = ("\n", "\n\n", "\n\n\n", "\n\n\n\n")

_TINY_SIDE: Final = 56
_TOKENS_OF_A_TINY_IMAGE: Final = 4  # its 16 patches, of which four become one token


@dataclass(frozen=True, kw_only=True)
class Squares(Vision):
    """The vision of Gemma 3."""

    tower: str = "vision_tower"
    joins: tuple[str, ...] = ("multi_modal_projector",)
    special_tokens: tuple[str, ...] = (START, END, IMAGE)
    text_tokens: tuple[str, ...] = NEWLINES
    id_tokens: Mapping[str, str] = field(
        default_factory=lambda: {"boi_token_index": START, "eoi_token_index": END, "image_token_index": IMAGE}
    )
    image_field: str = "boi_token_index"
    named_tokens: Mapping[str, str] = field(
        default_factory=lambda: {"boi_token": START, "eoi_token": END, "image_token": IMAGE}
    )
    image_text: str = START
    sees_both_ways: bool = True

    @override
    def load_processor(self, folder: Path) -> Any:
        processor = super().load_processor(folder)
        if processor.image_processor.do_pan_and_scan:
            raise ValueError(
                f"{folder} cuts images into crops (pan and scan), whose number does not follow from the tokens of a "
                "prompt: set do_pan_and_scan of its preprocessor_config.json to false"
            )
        return processor

    @override
    def image_tokens(self, processor: Any, size: ImageSize, ids: Mapping[str, int]) -> Int32Array:
        text = processor.full_image_sequence
        return np.array(processor.tokenizer(text, add_special_tokens=False)["input_ids"], np.int32)

    @override
    def joined(self, processor: Any, token_ids: Int32Array) -> Int32Array:
        """The line breaks around an image are one token with those beside them, as vLLM has it too."""
        one, two, three, four = processor.tokenizer.convert_tokens_to_ids(list(NEWLINES))
        for pair, merged in (((one, two), three), ((two, one), three), ((two, two), four)):
            token_ids = _merged(token_ids, pair, merged)
        return token_ids

    @override
    def shown_size(self, processor: Any, size: ImageSize) -> ImageSize:
        side = processor.image_processor.size
        return side["width"], side["height"]

    @override
    def image_inputs(self, family_processor: Any, images: "Sequence[Image.Image]") -> list[MediaInputs]:
        made = family_processor.image_processor(
            images=list(images), do_rescale=False, do_normalize=False, return_tensors="pt"
        )
        return [MediaInputs({"pixel_values": values[None].clone()}) for values in made["pixel_values"]]

    @override
    def prepare(self, model: "PreTrainedModel") -> None:
        show_images(model, "token_type_ids")

    @override
    def begin(self, model: "PreTrainedModel") -> None:
        model.base_model.get_parameter("multi_modal_projector.mm_input_projection_weight").data.normal_(std=0.02)

    @override
    def tiny_fields(self, source: TinySizes) -> dict[str, Any]:
        tower = tiny_tower(
            source,
            model_type="siglip_vision_model",
            image_size=_TINY_SIDE,
            patch_size=self.patch_size,
            vision_use_head=False,
        )
        return {"vision_config": tower, "mm_tokens_per_image": _TOKENS_OF_A_TINY_IMAGE}

    @override
    def tiny_processor(self, tokenizer: "PreTrainedTokenizerBase") -> "ProcessorMixin":
        from transformers import Gemma3ImageProcessor, Gemma3Processor

        side = {"height": _TINY_SIDE, "width": _TINY_SIDE}
        return Gemma3Processor(
            image_processor=Gemma3ImageProcessor(size=side, do_pan_and_scan=False),
            tokenizer=tokenizer,
            image_seq_length=_TOKENS_OF_A_TINY_IMAGE,
            chat_template=tokenizer.chat_template,
        )


def _merged(token_ids: Int32Array, pair: tuple[int, int], merged: int) -> Int32Array:
    """With a token in place of each pair, from the left."""
    found: list[int] = []
    for token in token_ids.tolist():
        if found and (found[-1], token) == pair:
            found[-1] = merged
        else:
            found.append(token)
    return np.array(found, np.int32)


def show_images(model: "PreTrainedModel", argument: str) -> None:
    """Give a model an argument that says which tokens are of images: without, it lets them see only those before
    them."""

    def with_blocks(
        module: "PreTrainedModel", args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        if "pixel_values" in kwargs:
            kwargs[argument] = (kwargs["input_ids"] == module.config.image_token_id).long()
        return args, kwargs

    model.base_model.register_forward_pre_hook(with_blocks, with_kwargs=True)


FAMILY: Final = Family(
    name="gemma3",
    model_type="gemma3",
    vision=Squares(),
    ties_embeddings=True,
    tiny_text=lambda head_size: {"model_type": "gemma3_text", **TEXT.tiny_text(head_size)},
)
