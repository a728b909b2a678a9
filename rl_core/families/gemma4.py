"""Gemma 4 with images, E2B to 31B. An image keeps its shape, and is scaled to as many tokens as its settings allow. In
the larger models its tokens see each other, the later ones too, in the layers with a window.

Sound and videos are not taken. What a model has for sound stays as it is."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from typing_extensions import override

from rl_core.families.gemma3 import show_images
from rl_core.families.gemma4_text import ENGINE, TwoKindsOfHeads, tiny_text
from rl_core.families.vision import ImageSize, MediaInputs, TinySizes, Vision, tiny_tower
from rl_core.types import Int32Array

if TYPE_CHECKING:
    from PIL import Image
    from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase, ProcessorMixin

START, IMAGE, END = "<|image>", "<|image|>", "<image|>"
SOUND_START, SOUND, SOUND_END = "<|audio>", "<|audio|>", "<audio|>"
VIDEO: Final = "<|video|>"

_TINY_TOKENS: Final = 70  # the fewest that its processor knows
_TINY_POOLED: Final = 2  # published: 3 by 3 patches become one token


@dataclass(frozen=True, kw_only=True)
class ScaledToTokens(Vision):
    """The vision of Gemma 4."""

    tower: str = "vision_tower"
    joins: tuple[str, ...] = ("embed_vision", "audio_tower", "embed_audio")  # of sound too, which gets no adapters
    special_tokens: tuple[str, ...] = (START, IMAGE, END, SOUND_START, SOUND, SOUND_END, VIDEO)
    id_tokens: Mapping[str, str] = field(
        default_factory=lambda: {
            "boi_token_id": START,
            "image_token_id": IMAGE,
            "eoi_token_id": END,
            "boa_token_id": SOUND_START,
            "audio_token_id": SOUND,
            "eoa_token_index": SOUND_END,
            "video_token_id": VIDEO,
        }
    )
    named_tokens: Mapping[str, str] = field(
        default_factory=lambda: {
            "boi_token": START,
            "image_token": IMAGE,
            "eoi_token": END,
            "boa_token": SOUND_START,
            "audio_token": SOUND,
            "eoa_token": SOUND_END,
        }
    )
    image_text: str = IMAGE
    sees_both_ways: bool = True
    patch_size: int = 16

    @override
    def image_tokens(self, processor: Any, size: ImageSize, ids: Mapping[str, int]) -> Int32Array:
        width, height = self.shown_size(processor, size)
        side = processor.image_processor.patch_size * processor.image_processor.pooling_kernel_size
        tokens = np.full((width // side) * (height // side) + 2, ids[self.image_field], np.int32)
        tokens[0], tokens[-1] = ids["boi_token_id"], ids["eoi_token_id"]
        return tokens

    @override
    def shown_size(self, processor: Any, size: ImageSize) -> ImageSize:
        from transformers.models.gemma4.image_processing_gemma4 import get_aspect_ratio_preserving_size

        width, height = size
        images = processor.image_processor
        height, width = get_aspect_ratio_preserving_size(
            height=height,
            width=width,
            patch_size=images.patch_size,
            max_patches=images.max_soft_tokens * images.pooling_kernel_size**2,
            pooling_kernel_size=images.pooling_kernel_size,
        )
        return width, height

    @override
    def image_inputs(self, family_processor: Any, images: "Sequence[Image.Image]") -> list[MediaInputs]:
        made = family_processor.image_processor(images=list(images), do_rescale=False, return_tensors="pt")
        return [
            MediaInputs({"pixel_values": values[None].clone(), "image_position_ids": places[None].clone()})
            for values, places in zip(made["pixel_values"], made["image_position_ids"], strict=True)
        ]

    @override
    def engine_arguments(self, family_processor: Any, config: "PreTrainedConfig", *, tokens: int) -> dict[str, Any]:
        """Without it vLLM counts the tokens of an image by the model's config, and scales it by its processor's."""
        return {"mm_processor_kwargs": {"max_soft_tokens": family_processor.image_processor.max_soft_tokens}}

    @override
    def prepare(self, model: "PreTrainedModel") -> None:
        show_images(model, "mm_token_type_ids")

    @override
    def tiny_fields(self, source: TinySizes) -> dict[str, Any]:
        tower = tiny_tower(
            source,
            num_key_value_heads=source.num_heads,
            head_dim=source.vision_hidden_size // source.num_heads,
            patch_size=self.patch_size,
            pooling_kernel_size=_TINY_POOLED,
            position_embedding_size=_TINY_POOLED * _TINY_TOKENS,
            default_output_length=_TINY_TOKENS,
            use_clipped_linears=True,
            standardize=True,
        )
        return {"vision_config": tower}

    @override
    def tiny_processor(self, tokenizer: "PreTrainedTokenizerBase") -> "ProcessorMixin":
        from transformers import (
            Gemma4AudioFeatureExtractor,
            Gemma4ImageProcessor,
            Gemma4Processor,
            Gemma4VideoProcessor,
        )

        images = Gemma4ImageProcessor(
            patch_size=self.patch_size, pooling_kernel_size=_TINY_POOLED, max_soft_tokens=_TINY_TOKENS
        )
        return Gemma4Processor(
            feature_extractor=Gemma4AudioFeatureExtractor(),
            image_processor=images,
            tokenizer=tokenizer,
            video_processor=Gemma4VideoProcessor(),
            chat_template=tokenizer.chat_template,
            image_seq_length=_TINY_TOKENS,
        )


FAMILY: Final = TwoKindsOfHeads(
    name="gemma4",
    model_type="gemma4",
    vision=ScaledToTokens(),
    engine=ENGINE,
    ties_embeddings=True,
    tiny_text=lambda head_size: {
        "model_type": "gemma4_text",
        "use_bidirectional_attention": "vision",
        **tiny_text(head_size),
        "sliding_window": _TINY_TOKENS + 2,  # no image is longer
    },
)
