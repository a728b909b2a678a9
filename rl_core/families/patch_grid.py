"""How the Qwen families see: an image of any size is a grid of patches, of which each 2 x 2 become one token, with
positions in time, height and width (Qwen2-VL, arXiv:2409.12191, section 2.1)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
from typing_extensions import override

from rl_core.families.mrope import VisionRun, mrope_positions
from rl_core.families.vision import EngineImages, ImageSize, MediaInputs, TinySizes, VideoShape, Vision
from rl_core.types import Int32Array, Int64Array

if TYPE_CHECKING:
    import torch
    from PIL import Image
    from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase, ProcessorMixin

IMAGE, VIDEO, START, END = "<|image_pad|>", "<|video_pad|>", "<|vision_start|>", "<|vision_end|>"
SPECIAL_TOKENS: Final = (START, END, "<|vision_pad|>", IMAGE, VIDEO)

_FRAMES_OF_A_STEP: Final = 2


def mrope_by_proportion(head_size: int) -> dict[str, Any]:
    """How many rotary frequencies of a head are for time, height and width: the published 16 : 24 : 24."""
    half = head_size // 2
    spatial = half * 3 // 8
    return rope_parameters(mrope_section=[half - 2 * spatial, spatial, spatial])


def rope_parameters(**mrope: Any) -> dict[str, Any]:
    """The field of a text config."""
    return {"rope_parameters": {"rope_type": "default", "rope_theta": 1e6, **mrope}}


@dataclass(frozen=True, kw_only=True)
class PatchGrid(Vision):
    """The vision of a Qwen family.

    Attributes:
        processor, image_processor, video_processor: Names of their classes in transformers.
        steps: What the time steps of a video are: `consecutive` positions, positions that follow the `seconds` between
            them (Qwen2.5-VL, arXiv:2502.13923, section 2.1.2), or runs of their own after the time as `text`
            (Qwen3-VL, arXiv:2511.21631).
        tiny_tower: The vision config of a tiny model, but for what all have.
    """

    processor: str
    image_processor: str = "Qwen2VLImageProcessor"
    video_processor: str
    steps: Literal["consecutive", "seconds", "text"]
    tiny_tower: Callable[[TinySizes], Mapping[str, Any]]
    tower: str = "visual"
    read_on_cpu: tuple[str, ...] = ("image_grid_thw", "video_grid_thw")
    special_tokens: tuple[str, ...] = SPECIAL_TOKENS
    id_tokens: Mapping[str, str] = field(
        default_factory=lambda: {
            "image_token_id": IMAGE,
            "video_token_id": VIDEO,
            "vision_start_token_id": START,
            "vision_end_token_id": END,
        }
    )
    image_text: str = START + IMAGE + END
    video_text: str | None = START + VIDEO + END
    packs_images: bool = True
    prepares_images: bool = True

    @override
    def load_processor(self, folder: Path) -> "Processors":
        return Processors.load(folder)

    @override
    def image_tokens(self, processor: "Processors", size: ImageSize, ids: Mapping[str, int]) -> Int32Array:
        width, height = size
        patches: int = processor.image.get_number_of_image_patches(height, width)
        return np.full(patches // processor.image.merge_size**2, ids["image_token_id"], np.int32)

    @override
    def shown_size(self, processor: "Processors", size: ImageSize) -> ImageSize:
        from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import smart_resize

        width, height = size
        image = processor.image
        limits = {"min_pixels": image.size["shortest_edge"], "max_pixels": image.size["longest_edge"]}
        height, width = smart_resize(height, width, factor=image.patch_size * image.merge_size, **limits)
        return width, height

    @override
    def video_tokens(
        self,
        processor: "Processors",
        shape: VideoShape,
        ids: Mapping[str, int],
        tokenizer: "PreTrainedTokenizerBase",
    ) -> Int32Array:
        video = processor.video
        patches: int = video.get_num_of_video_patches(shape.frames, shape.height, shape.width, {})
        placeholders = np.full(patches // video.merge_size**2, ids["video_token_id"], np.int32)
        if self.steps != "text":
            return placeholders
        # For each step: its time in seconds as text, and its placeholders between vision tokens.
        merged: int = video.temporal_patch_size
        pieces = []
        for number, step in enumerate(np.split(placeholders, shape.frames // merged)):
            seconds = (number * merged + (merged - 1) / 2) / shape.fps
            written = tokenizer.encode(f"<{seconds:.1f} seconds>", add_special_tokens=False)
            pieces += [written, [ids["vision_start_token_id"]], step, [ids["vision_end_token_id"]]]
        return np.concatenate([np.asarray(piece, np.int32) for piece in pieces])

    @override
    def image_inputs(self, family_processor: Any, images: "Sequence[Image.Image]") -> list[MediaInputs]:
        import torch

        made = family_processor.image_processor(
            images=list(images), do_rescale=False, do_normalize=False, return_tensors="pt"
        )
        assert made["pixel_values"].dtype == torch.uint8, "the processors of these families resize 8-bit images"
        grids = made["image_grid_thw"]
        values = torch.split(made["pixel_values"], grids.prod(-1).tolist())
        # Copied, so that the memory of one image can be freed without that of the others.
        return [
            MediaInputs({"pixel_values": value.clone(), "image_grid_thw": grid})
            for value, grid in zip(values, grids.split(1), strict=True)
        ]

    @override
    def video_inputs(
        self, family_processor: Any, frames: np.ndarray[Any, np.dtype[np.uint8]], times: Mapping[str, Any]
    ) -> MediaInputs:
        made = family_processor.video_processor(
            videos=[frames], video_metadata=[times], do_sample_frames=False, return_tensors="pt"
        )
        names = ("pixel_values_videos", "video_grid_thw")
        return MediaInputs({name: made[name] for name in names}, fps=times["fps"])

    @override
    def normalised(self, family_processor: Any, values: "torch.Tensor") -> "torch.Tensor":
        """Of patches [N, C]."""
        processor = family_processor.image_processor
        by_channel = values.view(len(values), len(processor.image_mean), -1, processor.patch_size)
        return super().normalised(family_processor, by_channel).view(values.shape)

    @override
    def positions(
        self,
        token_ids: Int32Array,
        images: Sequence[MediaInputs],
        videos: Sequence[MediaInputs],
        config: "PreTrainedConfig",
    ) -> Int64Array:
        """[3, P] in time, height and width."""
        runs = {
            config.image_token_id: [VisionRun(_grid(image, "image_grid_thw")) for image in images],
            config.video_token_id: [run for video in videos for run in self._video_runs(video, config)],
        }
        return mrope_positions(token_ids, runs, merge_size=config.vision_config.spatial_merge_size)

    def _video_runs(self, video: MediaInputs, config: "PreTrainedConfig") -> list[VisionRun]:
        grid = steps, height, width = _grid(video, "video_grid_thw")
        if self.steps == "text":
            return [VisionRun((1, height, width))] * steps
        if self.steps == "consecutive":
            return [VisionRun(grid)]
        # In float32, as in the processors, because the positions are truncated to integers.
        seconds = float(np.float32(_FRAMES_OF_A_STEP / video.fps))
        return [VisionRun(grid, interval=seconds * config.vision_config.tokens_per_second)]

    @override
    def engine_images(self, family_processor: Any, images: Sequence[MediaInputs], *, raw: bool) -> EngineImages:
        import torch

        values = torch.cat([image.tensors["pixel_values"] for image in images])
        grids = torch.cat([image.tensors["image_grid_thw"] for image in images])
        sizes = grids.prod(-1)
        merged: int = family_processor.image_processor.merge_size**2
        return EngineImages(
            {"pixel_values": values if raw else self.normalised(family_processor, values), "image_grid_thw": grids},
            {"pixel_values": sizes},
            (sizes // merged).tolist(),
        )

    @override
    def engine_arguments(self, family_processor: Any, config: "PreTrainedConfig", *, tokens: int) -> dict[str, Any]:
        """`mm_processor_kwargs`, with which no image or video has more than about this many tokens: at its start vLLM
        tries the largest one that the processor lets through, 16,384 tokens for the published Qwen2.5-VL, and keeps the
        memory that this takes free for ever.

        With a quarter more than the tokens of the longest prompt, every prompt stays as it is. A processor rounds the
        sides of what it scales down to whole tokens and refuses a side that is 200 times the other one, so what it
        scales has at least 6/7 of the tokens that it may have, where these are thousands: then it is too long for a
        prompt.
        """
        vision = config.vision_config
        area = tokens * (vision.patch_size * vision.spatial_merge_size) ** 2
        frames = vision.temporal_patch_size  # which a token of a video shows
        limits = {
            "images_kwargs": {"size": _within(family_processor.image_processor.size, area)},
            "videos_kwargs": {"size": _within(family_processor.video_processor.size, area * frames)},
        }
        return {"mm_processor_kwargs": limits}

    @override
    def prepare(self, model: "PreTrainedModel") -> None:
        """The index tensors of the tower come from the host."""
        from rl_core.families.patch_grid_tower import add_vision_index

        add_vision_index(model.base_model.get_submodule(self.tower))

    @override
    def tiny_fields(self, source: TinySizes) -> dict[str, Any]:
        tower = {"depth": source.vision_depth, "num_heads": source.num_heads, "patch_size": self.patch_size}
        return {"vision_config": tower | dict(self.tiny_tower(source))}

    @override
    def tiny_processor(self, tokenizer: "PreTrainedTokenizerBase") -> "ProcessorMixin":
        """9 tokens for an image of 6 x 6 patches."""
        import transformers

        processor: ProcessorMixin = getattr(transformers, self.processor)(
            image_processor=getattr(transformers, self.image_processor)(patch_size=self.patch_size),
            tokenizer=tokenizer,
            video_processor=getattr(transformers, self.video_processor)(patch_size=self.patch_size),
            chat_template=tokenizer.chat_template,
        )
        return processor


@dataclass(frozen=True)
class Processors:
    """What computes the patches of an image and of a video from their sizes."""

    image: Any
    video: Any

    @classmethod
    def load(cls, folder: Path) -> "Processors":
        """Raises ValueError where the processors of a folder cannot."""
        # The PIL backend needs no torchvision and has the same grid.
        from transformers import AutoImageProcessor, AutoVideoProcessor

        image = AutoImageProcessor.from_pretrained(folder, backend="pil", trust_remote_code=False)
        video = AutoVideoProcessor.from_pretrained(folder, trust_remote_code=False)
        for processor, method in ((image, "get_number_of_image_patches"), (video, "get_num_of_video_patches")):
            if not (hasattr(processor, method) and hasattr(processor, "merge_size")):
                raise ValueError(
                    f"{type(processor).__name__} of {folder} is not supported: use the processor of the published model"
                )
        return cls(image, video)


def _grid(media: MediaInputs, name: str) -> tuple[int, int, int]:
    steps, height, width = media.tensors[name][0].tolist()
    return steps, height, width


def _within(size: Any, area: int) -> dict[str, int]:
    """The least and the most pixels that a processor lets through, the latter at most `area`."""
    least, most = int(size["shortest_edge"]), int(size["longest_edge"])
    return {"shortest_edge": least, "longest_edge": max(least, min(most, area))}
