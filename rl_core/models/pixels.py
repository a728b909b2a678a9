"""The pixels of images and videos, decoded and cut into patches once, for generator and trainer."""

import os
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image

from rl_core.families.registry import vision_of
from rl_core.families.vision import EngineImages, MediaInputs, Vision
from rl_core.models.loading import load_architecture, load_processor
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


_Key = str | VideoClip
_Call = Future[dict[_Key, MediaInputs]]


class PixelCache:
    """Image uid or video -> what a model's forward pass takes for it, made in the background where it is asked for in
    advance. Of a text model nothing may be asked for.

    The least recently used are forgotten when all that was asked for takes more memory than the limit.
    """

    def __init__(
        self,
        model_folder: Path,
        images: ImageSource,
        *,
        limit_bytes: int = _LIMIT_BYTES,
    ) -> None:
        self._vision = vision_of(load_architecture(model_folder).model_type)
        self._processor: Any = None if self._vision is None else load_processor(model_folder)
        self._images = images
        self._limit_bytes = limit_bytes
        self._threads = _single_threaded_workers(_THREADS)
        self._coming: dict[_Key, _Call] = {}
        self._taken: OrderedDict[_Key, MediaInputs] = OrderedDict()
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
            call: _Call = self._threads.submit(self._make_images, together)
            self._coming |= dict.fromkeys(together, call)

    def get(self, uids: Sequence[str]) -> list[MediaInputs]:
        """In the given order. Raises KeyError for an unknown uid."""
        self.prepare(uids)
        return self._take(uids)

    def get_videos(self, clips: Sequence[VideoClip]) -> list[MediaInputs]:
        """In the given order."""
        for clip in clips:
            if self._is_missing(clip):
                self._coming[clip] = self._threads.submit(self._make_video, clip)
        return self._take(clips)

    def forward_inputs(
        self, images: Sequence[MediaInputs], videos: Sequence[MediaInputs], device: torch.device
    ) -> dict[str, torch.Tensor]:
        """The keyword arguments of a model's forward pass for these images and videos."""
        return {} if self._vision is None else self._vision.forward_inputs(self._processor, images, videos, device)

    def engine_images(self, uids: Sequence[str], *, raw: bool) -> EngineImages | None:
        """Images as vLLM's processor would give them; None where the family leaves them to that. `raw` are pixel values
        that the engine normalises itself."""
        seeing = self._seeing
        return seeing.engine_images(self._processor, self.get(uids), raw=raw) if seeing.prepares_images else None

    def clear(self) -> None:
        """Forget all images and videos."""
        self._coming.clear()
        self._taken.clear()
        self._taken_bytes = 0

    def _make_images(self, uids: Sequence[str]) -> dict[_Key, MediaInputs]:
        images = [self._images.image(uid) for uid in uids]
        return dict(zip(uids, self._seeing.image_inputs(self._processor, images), strict=True))

    def _make_video(self, clip: VideoClip) -> dict[_Key, MediaInputs]:
        return {clip: self._seeing.video_inputs(self._processor, *clip_input(clip, self._images))}

    @property
    def _seeing(self) -> Vision:
        assert self._vision is not None, "a text model has neither images nor videos"
        return self._vision

    def _is_missing(self, key: _Key) -> bool:
        return key not in self._taken and key not in self._coming

    def _take(self, keys: Sequence[_Key]) -> list[MediaInputs]:
        found = [self._take_one(key) for key in keys]
        while self._taken_bytes > self._limit_bytes:
            _, oldest = self._taken.popitem(last=False)
            self._taken_bytes -= oldest.nbytes
        return found

    def _take_one(self, key: _Key) -> MediaInputs:
        if key not in self._taken:
            pixels = self._coming.pop(key).result()[key]
            self._taken[key] = pixels
            self._taken_bytes += pixels.nbytes
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
