"""A video clip in the form that both generator and trainer take: its frames and their times."""

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from PIL import Image

from rl_core.types import VideoClip


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
