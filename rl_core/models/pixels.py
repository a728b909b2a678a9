"""Pixel tensors of a step's images and videos, computed once in each step."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from transformers import PreTrainedTokenizerBase, ProcessorMixin

from rl_core.clips import ImageSource, clip_input
from rl_core.types import VideoClip


@dataclass(frozen=True, kw_only=True, slots=True)
class VisionPixels:
    """One image or video in the form that the vision tower takes.

    Attributes:
        values: [t*h*w, C] flattened patches, float32, on the CPU.
        grid_thw: (t, h, w) in patches.
        fps: Frames per second of a video; 0 for an image.
    """

    values: torch.Tensor
    grid_thw: tuple[int, int, int]
    fps: float = 0.0


class PixelCache:
    """Image uid or video -> pixels, computed on demand. The owner clears it at the end of each step."""

    def __init__(self, processor: ProcessorMixin | PreTrainedTokenizerBase, images: ImageSource) -> None:
        """`processor` may be a tokenizer for a text model; then asking for an image is a TypeError."""
        self._processor = processor
        self._images = images
        self._pixels: dict[str | VideoClip, VisionPixels] = {}

    def get(self, uids: Sequence[str]) -> list[VisionPixels]:
        """Pixels of the images, in the given order."""
        self._make(uid for uid in dict.fromkeys(uids) if uid not in self._pixels)
        return [self._pixels[uid] for uid in uids]

    def get_videos(self, clips: Sequence[VideoClip]) -> list[VisionPixels]:
        """Pixels of the videos, in the given order."""
        for clip in clips:
            if clip not in self._pixels:
                self._pixels[clip] = self._make_video(clip)
        return [self._pixels[clip] for clip in clips]

    def clear(self) -> None:
        """Forget all images and videos."""
        self._pixels.clear()

    def _make(self, uids: Iterable[str]) -> None:
        missing = list(uids)
        if not missing:
            return
        processor = self._vision_processor(missing[0]).image_processor
        made = processor(images=[self._images.image(uid) for uid in missing], return_tensors="pt")
        grids = [_grid(row) for row in made["image_grid_thw"]]
        values = torch.split(made["pixel_values"], [t * h * w for t, h, w in grids])
        for uid, value, grid in zip(missing, values, grids, strict=True):
            self._pixels[uid] = VisionPixels(values=value, grid_thw=grid)

    def _make_video(self, clip: VideoClip) -> VisionPixels:
        frames, times = clip_input(clip, self._images)
        processor = self._vision_processor(clip.frame_uids[0]).video_processor
        made = processor(videos=[frames], video_metadata=[times], do_sample_frames=False, return_tensors="pt")
        return VisionPixels(values=made["pixel_values_videos"], grid_thw=_grid(made["video_grid_thw"][0]), fps=clip.fps)

    def _vision_processor(self, uid: str) -> ProcessorMixin:
        if not isinstance(self._processor, ProcessorMixin):
            raise TypeError(f"image {uid!r} was asked for, but the model is a text model without a processor")
        return self._processor


def _grid(row: torch.Tensor) -> tuple[int, int, int]:
    t, h, w = row.tolist()
    return int(t), int(h), int(w)
