"""The pixels of images and videos, decoded and cut into patches once, for generator and trainer."""

import os
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from threading import Barrier
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from transformers import BaseImageProcessor, PreTrainedTokenizerBase, ProcessorMixin

from rl_core.types import VideoClip

# Patches of an image take about six bytes a pixel, so this is the memory of some 1,400 images of 0.5 megapixels.
_LIMIT_BYTES = 4 << 30

# Images of one call of the processor: enough to make the costs of a call small, and few enough that several threads
# have work and the first image does not wait for all others.
_IMAGES_PER_CALL = 16

# Some cores stay free for the trainer and the generator, which work at the same time.
_THREADS = max(1, min(4, len(os.sched_getaffinity(0)) // 4))


class ImageSource(Protocol):
    """Gives images and video frames by their uid."""

    def image(self, uid: str) -> Image.Image:
        """The decoded RGB image. Raises KeyError for an unknown uid."""


def clip_input(clip: VideoClip, images: ImageSource) -> tuple[npt.NDArray[np.uint8], dict[str, Any]]:
    """A clip as processors take it: frames [T, H, W, 3] and their times. They are described as a complete video, since
    a processor that sampled frames again, or guessed the frame rate, would see other frames and times."""
    frames = np.stack([np.asarray(images.image(uid)) for uid in clip.frame_uids])
    count = len(frames)
    return frames, {
        "fps": clip.fps,
        "frames_indices": list(range(count)),
        "total_num_frames": count,
        "duration": count / clip.fps,
        "video_backend": "opencv",
    }


@dataclass(frozen=True, kw_only=True, slots=True)
class VisionPixels:
    """One image or video in the form that the vision tower takes."""

    # [t*h*w, C] flattened patches, on the CPU: of an image uint8, which `PixelCache.normalised` turns into the vision
    # tower's numbers; of a video float32, and normalised
    values: torch.Tensor
    grid_thw: tuple[int, int, int]  # (t, h, w) in patches
    fps: float = 0.0  # Frames per second of a video; 0 for an image


_Key = str | VideoClip
_Call = Future[dict[_Key, VisionPixels]]


class PixelCache:
    """Image uid or video -> pixels, made in the background where they are asked for in advance. A text model's
    tokenizer takes the place of the processor, and then nothing may be asked for.

    The least recently used are forgotten when all that was asked for takes more memory than the limit.
    """

    def __init__(
        self,
        processor: ProcessorMixin | PreTrainedTokenizerBase,
        images: ImageSource,
        *,
        limit_bytes: int = _LIMIT_BYTES,
    ) -> None:
        self._processor: Any = processor
        self._images = images
        self._limit_bytes = limit_bytes
        self._threads = _single_threaded_workers(_THREADS)
        self._coming: dict[_Key, _Call] = {}
        self._taken: OrderedDict[_Key, VisionPixels] = OrderedDict()
        self._taken_bytes = 0

    @property
    def images(self) -> ImageSource:
        """Images by uid."""
        return self._images

    def prepare(self, uids: Iterable[str]) -> None:
        """Begin to make the pixels of images that will be asked for soon, in this order."""
        missing = [uid for uid in dict.fromkeys(uids) if self._is_missing(uid)]
        for start in range(0, len(missing), _IMAGES_PER_CALL):
            together = missing[start : start + _IMAGES_PER_CALL]
            processor = self._processor.image_processor
            call: _Call = self._threads.submit(_make_images, together, self._images, processor)
            self._coming |= dict.fromkeys(together, call)

    def get(self, uids: Sequence[str]) -> list[VisionPixels]:
        """In the given order. Raises KeyError for an unknown uid."""
        self.prepare(uids)
        return self._take(uids)

    def get_videos(self, clips: Sequence[VideoClip]) -> list[VisionPixels]:
        """In the given order."""
        for clip in clips:
            if self._is_missing(clip):
                self._coming[clip] = self._threads.submit(_make_video, clip, self._images, self._processor)
        return self._take(clips)

    def normalised(self, values: torch.Tensor) -> torch.Tensor:
        """[N, C] uint8 patches of images -> [N, C] float32 by the processor's own formula, on the same device."""
        processor = self._processor.image_processor
        by_channel = values.view(len(values), len(processor.image_mean), -1, processor.patch_size)
        normal: torch.Tensor = processor.rescale_and_normalize(
            by_channel,
            do_rescale=processor.do_rescale,
            rescale_factor=processor.rescale_factor,
            do_normalize=processor.do_normalize,
            image_mean=tuple(processor.image_mean),
            image_std=tuple(processor.image_std),
        )
        return normal.view(values.shape)

    def clear(self) -> None:
        """Forget all images and videos."""
        self._coming.clear()
        self._taken.clear()
        self._taken_bytes = 0

    def _is_missing(self, key: _Key) -> bool:
        return key not in self._taken and key not in self._coming

    def _take(self, keys: Sequence[_Key]) -> list[VisionPixels]:
        found = [self._take_one(key) for key in keys]
        while self._taken_bytes > self._limit_bytes:
            _, oldest = self._taken.popitem(last=False)
            self._taken_bytes -= oldest.values.nbytes
        return found

    def _take_one(self, key: _Key) -> VisionPixels:
        if key not in self._taken:
            pixels = self._coming.pop(key).result()[key]
            self._taken[key] = pixels
            self._taken_bytes += pixels.values.nbytes
        self._taken.move_to_end(key)
        return self._taken[key]


def _single_threaded_workers(count: int) -> ThreadPoolExecutor:
    """Threads in which torch computes without threads of its own.

    Otherwise each would have a team of OpenMP threads of its own. As soon as there are more such threads than cores,
    OpenMP lets all of them sleep when they wait, which made an update take 1.7 times as long.
    """
    threads = torch.get_num_threads()
    workers = ThreadPoolExecutor(count, thread_name_prefix="pixels", initializer=_compute_alone)
    # All of them start now, because the number that a thread sets is also the default of threads that start later.
    all_started = Barrier(count + 1)
    for _ in range(count):
        workers.submit(all_started.wait)
    all_started.wait()
    torch.set_num_threads(threads)
    return workers


def _compute_alone() -> None:
    torch.get_num_threads()  # the first call in a thread sets the default, which would undo what was set before
    torch.set_num_threads(1)


def _make_images(uids: Sequence[str], images: ImageSource, processor: BaseImageProcessor) -> dict[_Key, VisionPixels]:
    made = processor(
        images=[images.image(uid) for uid in uids], do_rescale=False, do_normalize=False, return_tensors="pt"
    )
    assert made["pixel_values"].dtype == torch.uint8, "the processors of the supported families resize 8-bit images"
    grids = [_grid(row) for row in made["image_grid_thw"]]
    values = torch.split(made["pixel_values"], [t * h * w for t, h, w in grids])
    # Copied, so that the memory of one image can be freed without that of the others.
    return {
        uid: VisionPixels(values=value.clone(), grid_thw=grid)
        for uid, value, grid in zip(uids, values, grids, strict=True)
    }


def _make_video(clip: VideoClip, images: ImageSource, processor: ProcessorMixin) -> dict[_Key, VisionPixels]:
    frames, times = clip_input(clip, images)
    made = processor.video_processor(
        videos=[frames], video_metadata=[times], do_sample_frames=False, return_tensors="pt"
    )
    grid = _grid(made["video_grid_thw"][0])
    return {clip: VisionPixels(values=made["pixel_values_videos"], grid_thw=grid, fps=clip.fps)}


def _grid(row: torch.Tensor) -> tuple[int, int, int]:
    t, h, w = row.tolist()
    return int(t), int(h), int(w)
