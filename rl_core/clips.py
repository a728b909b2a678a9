"""A clip in the one form that engine and trainer take: its frames and their times."""

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from PIL import Image

from rl_core.types import VideoClip


class ImageSource(Protocol):
    """Where the bytes of images and frames come from."""

    def image(self, uid: str) -> Image.Image:
        """The decoded RGB image. Raises KeyError for a uid it does not hold."""


def clip_input(clip: VideoClip, images: ImageSource) -> tuple[npt.NDArray[np.uint8], dict[str, Any]]:
    """A clip as processors take it: frames [T, H, W, 3] and their times.

    The frames are described as a video of their own, of which every frame is shown: a processor that samples once
    more, or guesses a pace, would see other frames or times than another one.
    """
    frames = np.stack([np.asarray(images.image(uid)) for uid in clip.frame_uids])
    count = len(frames)
    return frames, {
        "fps": clip.fps,
        "frames_indices": list(range(count)),
        "total_num_frames": count,
        "duration": count / clip.fps,
        "video_backend": "opencv",
    }
