"""How a family sees: the generic path, on which an image is what the family's own processor makes of it, and its tokens
have ordinary positions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from rl_core.types import Int32Array, Int64Array

if TYPE_CHECKING:
    import torch
    from PIL import Image
    from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase, ProcessorMixin

ImageSize = tuple[int, int]
"""Width and height in pixels."""


class TinySizes(Protocol):
    """The sizes of a tiny model: those of the section `model.source`."""

    @property
    def hidden_size(self) -> int: ...  # noqa: D102

    @property
    def intermediate_size(self) -> int: ...  # noqa: D102

    @property
    def num_layers(self) -> int: ...  # noqa: D102

    @property
    def num_heads(self) -> int: ...  # noqa: D102

    @property
    def num_key_value_heads(self) -> int: ...  # noqa: D102

    @property
    def vision_depth(self) -> int: ...  # noqa: D102

    @property
    def vision_hidden_size(self) -> int: ...  # noqa: D102


class VideoShape(NamedTuple):
    """The frames of a video (an even number), their size in pixels, and how many there are in each second."""

    frames: int
    width: int
    height: int
    fps: float


class MediaInputs(NamedTuple):
    """What the model's forward pass takes for one image or video, by the names of its arguments, on the CPU."""

    tensors: "Mapping[str, torch.Tensor]"
    fps: float = 0.0  # Frames per second of a video; 0 for an image

    @property
    def nbytes(self) -> int:
        """Their memory in bytes."""
        return sum(tensor.nbytes for tensor in self.tensors.values())


class EngineImages(NamedTuple):
    """What vLLM takes for images: tensors by the names of its arguments; for each that holds all images one after the
    other, how many rows of it are of which image; and how many placeholders each image has."""

    tensors: "Mapping[str, torch.Tensor]"
    rows: "Mapping[str, torch.Tensor]"
    tokens: Sequence[int]


@dataclass(frozen=True, kw_only=True)
class Vision:
    """How the models of a family see.

    A `processor` is what `load_processor` returns, from which tokens follow; a `family_processor` is the whole one of
    transformers, with `image_processor` and `video_processor`.

    Attributes:
        tower: Name of the vision tower in the model without its head.
        joins: Names of the modules beside it that join its features to the language model.
        unused: Names of modules whose weights are in the files and computed with nowhere, so that vLLM leaves them out.
        special_tokens: Tokens of the tokenizer that stand for images and videos.
        text_tokens: Tokens of ordinary text that the family's processor needs in the tokenizer of a tiny model.
        id_tokens: [field of config.json] -> its token, of the fields that hold the ids of such tokens.
        image_field: That of `id_tokens` with the placeholder of an image.
        named_tokens: [attribute of the tokenizer] -> its token, where the family's processor asks for them.
        image_text: What a chat template writes for an image, with one placeholder.
        video_text: The same for a video; None for a family whose videos are not supported.
        sees_both_ways: Whether the language model lets the tokens of an image see each other, the later ones too.
        packs_images: Whether the attention of the tower takes all images in one sequence, with their bounds.
        prepares_images: Whether `engine_images` spares vLLM its own processor.
        joined_along: [name of a tensor of images] -> the dimension along which those of several are joined, if not 0.
        read_on_cpu: Names of the tensors of images and videos that stay there, because a model reads them there.
        patch_size: Side of a patch of the vision tower in pixels, as in the published models.
    """

    tower: str
    joins: tuple[str, ...] = ()
    unused: tuple[str, ...] = ()
    special_tokens: tuple[str, ...]
    text_tokens: tuple[str, ...] = ()
    id_tokens: Mapping[str, str]
    image_field: str = "image_token_id"
    named_tokens: Mapping[str, str] = field(default_factory=dict)
    image_text: str
    video_text: str | None = None
    sees_both_ways: bool = False
    packs_images: bool = False
    prepares_images: bool = False
    joined_along: Mapping[str, int] = field(default_factory=dict)
    read_on_cpu: tuple[str, ...] = ()
    patch_size: int = 14

    @property
    def places(self) -> tuple[str, ...]:
        """The names of the modules of tower and joins."""
        return (self.tower, *self.joins)

    # Tokens, by sizes alone.

    def load_processor(self, folder: Path) -> Any:
        """What computes tokens from sizes. Raises ValueError where the folder's processor cannot."""
        from transformers import AutoProcessor

        return AutoProcessor.from_pretrained(folder, trust_remote_code=False)

    def image_tokens(self, processor: Any, size: ImageSize, ids: Mapping[str, int]) -> Int32Array:
        """The tokens that take the place of an image's placeholder; `ids` are those of `id_tokens`. Raises ValueError
        where the processor refuses the size."""
        raise NotImplementedError

    def joined(self, processor: Any, token_ids: Int32Array) -> Int32Array:
        """The tokens of a text in which those of its images have taken their places."""
        return token_ids

    def shown_size(self, processor: Any, size: ImageSize) -> ImageSize:
        """The size to which the processor scales an image. Raises ValueError as for its tokens."""
        raise NotImplementedError

    def video_tokens(
        self, processor: Any, shape: VideoShape, ids: Mapping[str, int], tokenizer: "PreTrainedTokenizerBase"
    ) -> Int32Array:
        """The tokens that take the place of a video's placeholder. Raises ValueError where the processor refuses its
        size."""
        raise NotImplementedError

    # Pixels.

    def image_inputs(self, family_processor: Any, images: "Sequence[Image.Image]") -> list[MediaInputs]:
        """Each RGB image as the model's forward pass takes it, but for `normalised`."""
        raise NotImplementedError

    def video_inputs(
        self, family_processor: Any, frames: np.ndarray[Any, np.dtype[np.uint8]], times: Mapping[str, Any]
    ) -> MediaInputs:
        """A video of frames [T, H, W, 3] and their times."""
        raise NotImplementedError

    def normalised(self, family_processor: Any, values: "torch.Tensor") -> "torch.Tensor":
        """uint8 pixel values of images -> float32 by the processor's own formula, on the same device."""
        processor = family_processor.image_processor
        normal: torch.Tensor = processor.rescale_and_normalize(
            values,
            do_rescale=processor.do_rescale,
            rescale_factor=processor.rescale_factor,
            do_normalize=processor.do_normalize,
            image_mean=tuple(processor.image_mean),
            image_std=tuple(processor.image_std),
        )
        return normal

    def forward_inputs(
        self,
        family_processor: Any,
        images: Sequence[MediaInputs],
        videos: Sequence[MediaInputs],
        device: "torch.device",
    ) -> "dict[str, torch.Tensor]":
        """The keyword arguments of a model's forward pass for these images and videos, in the order of their places."""
        import torch

        inputs: dict[str, torch.Tensor] = {}
        for media in (images, videos):
            for name in media[0].tensors if media else ():
                together = torch.cat([one.tensors[name] for one in media], dim=self.joined_along.get(name, 0))
                inputs[name] = together if name in self.read_on_cpu else moved(together, device)
        if images:
            inputs["pixel_values"] = self.normalised(family_processor, inputs["pixel_values"])
        return inputs

    def positions(
        self,
        token_ids: Int32Array,
        images: Sequence[MediaInputs],
        videos: Sequence[MediaInputs],
        config: "PreTrainedConfig",
    ) -> Int64Array:
        """[rows, P] positions of a prompt. Raises ValueError if its tokens do not match its images and videos."""
        return np.arange(len(token_ids), dtype=np.int64)[None]

    # The engine.

    def engine_images(self, family_processor: Any, images: Sequence[MediaInputs], *, raw: bool) -> EngineImages:
        """Images as vLLM's processor of the family would give them, their pixel values uint8 if they are `raw`."""
        raise NotImplementedError

    def engine_arguments(self, family_processor: Any, config: "PreTrainedConfig", *, tokens: int) -> dict[str, Any]:
        """Arguments of vLLM, so that an image or video that it tries at its start has about `tokens` at most."""
        return {}

    # Models.

    def prepare(self, model: "PreTrainedModel") -> None:
        """Changes to a loaded model, which do not change what it computes."""

    def begin(self, model: "PreTrainedModel") -> None:
        """Draws the weights of a new tiny model that transformers begins at zero, and without which it sees nothing."""

    def tiny_fields(self, source: TinySizes) -> dict[str, Any]:
        """The fields of the config.json of a tiny model besides those of its text config."""
        raise NotImplementedError

    def tiny_processor(self, tokenizer: "PreTrainedTokenizerBase") -> "ProcessorMixin":
        """The processor of the tiny models, with the tokenizer's chat template."""
        raise NotImplementedError


def moved(tensor: "torch.Tensor", device: "torch.device") -> "torch.Tensor":
    """A tensor of the host on the device. The host does not wait for a GPU: the copy starts from pinned memory."""
    return (tensor.pin_memory() if device.type == "cuda" else tensor).to(device, non_blocking=True)


def tiny_tower(source: TinySizes, **own: Any) -> dict[str, Any]:
    """Fields of a tiny tower by their usual names, and those that a family's tower has besides."""
    return {
        "hidden_size": source.vision_hidden_size,
        "intermediate_size": 2 * source.vision_hidden_size,
        "num_hidden_layers": source.vision_depth,
        "num_attention_heads": source.num_heads,
        **own,
    }
