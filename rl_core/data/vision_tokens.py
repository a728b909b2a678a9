"""The tokens of images and videos in a prompt, computed from their sizes alone."""

import json
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rl_core.planning.model_tokens import VISION_ID_FIELDS
from rl_core.types import Int32Array

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

ImageSize = tuple[int, int]
"""Width and height in pixels."""

# Families that write the time as text before every step of a video (Qwen3-VL, arXiv:2511.21631).
_TIMED_FAMILIES = frozenset({"qwen3_vl", "qwen3_vl_moe"})


class VideoShape(NamedTuple):
    """The frames of a video (an even number), their size in pixels, and how many there are in each second."""

    frames: int
    width: int
    height: int
    fps: float


class VisionTokens:
    """The tokens that stand for images and videos in a model's prompts. Raises ValueError where the folder is no model
    folder, or its processor cannot compute tokens from sizes."""

    def __init__(self, model_folder: Path, tokenizer: "PreTrainedTokenizerBase") -> None:
        self._folder = model_folder
        self._tokenizer = tokenizer
        config = _config(model_folder)
        self._ids = {key: config[key] for key in VISION_ID_FIELDS if config.get(key) is not None}
        self._is_timed = config.get("model_type") in _TIMED_FAMILIES
        self._image_processor = _processor(model_folder, "image") if self._ids else None
        self._video_processor = _processor(model_folder, "video") if self._ids else None
        self.of_image = lru_cache(maxsize=None)(self._of_image)
        self.of_video = lru_cache(maxsize=1024)(self._of_video)

    @property
    def image_token_id(self) -> int | None:
        """Placeholder token of an image; None for a text model."""
        return self._ids.get("image_token_id")

    @property
    def video_token_id(self) -> int | None:
        """Placeholder token of a video; None for a text model."""
        return self._ids.get("video_token_id")

    def _of_image(self, width: int, height: int) -> Int32Array:
        """[t x h x w / merge_size^2] placeholders of an image's patch grid. Raises ValueError where the model reads no
        images, or its processor refuses the size."""
        if self._image_processor is None:
            raise ValueError(f"the model in {self._folder} reads no images")
        patches: int = self._image_processor.get_number_of_image_patches(height, width)
        return np.full(patches // self._image_processor.merge_size**2, self.image_token_id, np.int32)

    def shown_size(self, width: int, height: int) -> ImageSize:
        """Size of an image in whole patches, as the processor scales it. Raises ValueError as for its tokens."""
        from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import smart_resize

        processor = self._image_processor
        if processor is None:
            raise ValueError(f"the model in {self._folder} reads no images")
        limits = {"min_pixels": processor.size["shortest_edge"], "max_pixels": processor.size["longest_edge"]}
        height, width = smart_resize(height, width, factor=processor.patch_size * processor.merge_size, **limits)
        return width, height

    def _of_video(self, shape: VideoShape) -> Int32Array:
        """A video's placeholders, and what the family writes between them. Raises ValueError as for an image."""
        processor = self._video_processor
        if processor is None:
            raise ValueError(f"the model in {self._folder} reads no videos")
        patches: int = processor.get_num_of_video_patches(shape.frames, shape.height, shape.width, {})
        placeholders = np.full(patches // processor.merge_size**2, self.video_token_id, np.int32)
        if not self._is_timed:
            return placeholders
        return self._timed(placeholders, shape, merged=processor.temporal_patch_size)

    def _timed(self, placeholders: Int32Array, shape: VideoShape, *, merged: int) -> Int32Array:
        """For each step of `merged` frames: its time in seconds as text, and its placeholders between vision tokens."""
        steps = np.split(placeholders, shape.frames // merged)
        start, end = self._ids["vision_start_token_id"], self._ids["vision_end_token_id"]
        pieces = []
        for number, step in enumerate(steps):
            seconds = (number * merged + (merged - 1) / 2) / shape.fps
            written = self._tokenizer.encode(f"<{seconds:.1f} seconds>", add_special_tokens=False)
            pieces += [written, [start], step, [end]]
        return np.concatenate([np.asarray(piece, np.int32) for piece in pieces])


def _config(folder: Path) -> dict[str, Any]:
    path = folder / "config.json"
    if not path.is_file():
        raise ValueError(f"{folder} is no model folder: it has no config.json")
    config: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return config


def _processor(folder: Path, kind: str) -> Any:
    # The PIL backend needs no torchvision and has the same grid.
    from transformers import AutoImageProcessor, AutoVideoProcessor

    if kind == "image":
        processor = AutoImageProcessor.from_pretrained(folder, backend="pil", trust_remote_code=False)
        known = hasattr(processor, "get_number_of_image_patches")
    else:
        processor = AutoVideoProcessor.from_pretrained(folder, trust_remote_code=False)
        known = hasattr(processor, "get_num_of_video_patches")
    if not known or not hasattr(processor, "merge_size"):
        raise ValueError(f"{type(processor).__name__} of {folder} is not supported: use a Qwen2, Qwen2.5 or Qwen3 VL")
    return processor
