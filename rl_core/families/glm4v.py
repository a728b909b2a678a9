"""GLM-4.1V (arXiv:2507.01006), images. An image is a grid of patches as for the Qwen families, with sizes and tokens of
its own."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from typing_extensions import override

from rl_core.families.family import Family
from rl_core.families.patch_grid import PatchGrid, Processors, rope_parameters
from rl_core.families.vision import ImageSize, TinySizes

if TYPE_CHECKING:
    from transformers import PreTrainedModel

START, END, IMAGE, VIDEO = "<|begin_of_image|>", "<|end_of_image|>", "<|image|>", "<|video|>"
VIDEO_START, VIDEO_END = "<|begin_of_video|>", "<|end_of_video|>"


@dataclass(frozen=True, kw_only=True)
class GlmGrid(PatchGrid):
    """The vision of GLM-4.1V."""

    special_tokens: tuple[str, ...] = (START, END, VIDEO_START, VIDEO_END, IMAGE, VIDEO)
    id_tokens: Mapping[str, str] = field(
        default_factory=lambda: {
            "image_token_id": IMAGE,
            "video_token_id": VIDEO,
            "image_start_token_id": START,
            "image_end_token_id": END,
            "video_start_token_id": VIDEO_START,
            "video_end_token_id": VIDEO_END,
        }
    )
    image_text: str = START + IMAGE + END
    video_text: str | None = None
    packs_images: bool = False
    prepares_images: bool = False

    @override
    def shown_size(self, processor: Processors, size: ImageSize) -> ImageSize:
        from transformers.models.glm4v.image_processing_glm4v import smart_resize

        width, height = size
        image = processor.image
        height, width = smart_resize(
            image.temporal_patch_size,
            height,
            width,
            factor=image.patch_size * image.merge_size,
            min_pixels=image.size["shortest_edge"],
            max_pixels=image.size["longest_edge"],
        )
        return width, height

    @override
    def prepare(self, model: "PreTrainedModel") -> None:
        """Its tower takes no index tensors."""


_PUBLISHED_WIDTH: Final = 1536
_PUBLISHED_SPREAD: Final = 0.02
"""Width of the published tower, and the standard deviation with which its weights are drawn."""


def _tower(source: TinySizes) -> dict[str, Any]:
    """What a layer passes on depends on width and spread of its weights. The last one that joins the tower multiplies
    two of its projections: with the published spread a narrow tower would give features of a thirtieth of those of the
    other families, and the language model would hardly see them."""
    return {
        "hidden_size": source.vision_hidden_size,
        "intermediate_size": 2 * source.vision_hidden_size,
        "out_hidden_size": source.hidden_size,
        "image_size": 56,
        "initializer_range": _PUBLISHED_SPREAD * (_PUBLISHED_WIDTH / source.vision_hidden_size) ** 0.5,
    }


def _text(head_size: int) -> dict[str, Any]:
    """Half of each head is rotated; half of its frequencies are for time, a quarter each for height and width."""
    frequencies = head_size // 4
    spatial = frequencies // 4
    rope = rope_parameters(partial_rotary_factor=0.5, mrope_section=[frequencies - 2 * spatial, spatial, spatial])
    return rope | {"attention_bias": True}


FAMILY: Final = Family(
    name="glm4v",
    model_type="glm4v",
    vision=GlmGrid(
        processor="Glm4vProcessor",
        image_processor="Glm4vImageProcessor",
        video_processor="Glm4vVideoProcessor",
        steps="consecutive",
        tiny_tower=_tower,
    ),
    tiny_text=_text,
)
