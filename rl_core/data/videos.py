"""Decodes videos: which frames are taken, and how many from each second."""

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, NamedTuple

import cv2
from PIL import Image

from rl_core.files import check_regular
from rl_core.sources.rows import VideoInput

_FRAMES_OF_A_STEP = 2  # the vision towers merge two frames into one step of time

# FFmpeg also reads lists of other files and addresses (ffconcat, HLS, DASH, SDP), with which the author of the data
# could choose which files of this machine are opened.
_READ_FORMATS = (
    *("mov", "mp4", "m4a", "3gp", "3g2", "mj2", "matroska", "webm"),
    *("avi", "mpeg", "mpegts", "mpegvideo", "flv", "asf", "ogg", "gif"),
)
os.environ["OPENCV_FFMPEG_CAPTURE_OPTIONS"] = f"format_whitelist;{','.join(_READ_FORMATS)}"  # no call takes this option

# Both libraries are silent: what is wrong with a video is the reason of its rejected row.
os.environ["OPENCV_FFMPEG_LOGLEVEL"] = "-8"
cv2.utils.logging.setLogLevel(cv2.utils.logging.LOG_LEVEL_SILENT)


class Frames(NamedTuple):
    """An even number of frames, `fps` from each second, beginning with the first frame of the video."""

    images: list[Image.Image]
    fps: float


def read_video(source: VideoInput, *, fps: float, max_frames: int) -> Frames:
    """Frames of a video at equal intervals: `fps` from each second, fewer if the video has fewer or would give more
    than `max_frames`, an even number. Raises ValueError with the reason for a BadRow."""
    with _file_of(source) as path:
        capture = cv2.VideoCapture(str(path), cv2.CAP_FFMPEG)
        try:
            return _sample(capture, fps=fps, max_frames=max_frames)
        except cv2.error as error:
            raise ValueError(f"the video is damaged: {error.err}") from None
        finally:
            capture.release()


def _sample(capture: Any, *, fps: float, max_frames: int) -> Frames:
    own_fps, total = capture.get(cv2.CAP_PROP_FPS), int(capture.get(cv2.CAP_PROP_FRAME_COUNT))
    # A header may claim any numbers; a video of infinite length has no last frame.
    if not capture.isOpened() or total < 1 or not own_fps > 0 or not math.isfinite(total / own_fps + own_fps):
        raise ValueError("the video is of no known format, or damaged")
    indices, pace = frame_indices(total, own_fps, fps=fps, max_frames=max_frames)
    wanted = set(indices)
    decoded = {}
    for number in range(indices[-1] + 1):
        if not capture.grab():
            raise ValueError(f"the video is damaged: it should have {total} frames, and frame {number} cannot be read")
        if number in wanted:
            readable, frame = capture.retrieve()
            if not readable:
                raise ValueError(f"the video is damaged: frame {number} cannot be decoded")
            decoded[number] = Image.fromarray(cv2.cvtColor(frame, cv2.COLOR_BGR2RGB))
    return Frames([decoded[number] for number in indices], pace)


def frame_indices(total: int, own_fps: float, *, fps: float, max_frames: int) -> tuple[list[int], float]:
    """An even number of rising indices of frames (of a single frame, this one twice), and how many there are in each
    second."""
    seconds = total / own_fps
    pace = min(fps, own_fps)
    count = max(1, round(seconds * pace))
    if count > max_frames:
        count, pace = max_frames, max_frames / seconds
    count = max(_FRAMES_OF_A_STEP, count - count % _FRAMES_OF_A_STEP)
    indices = [min(total - 1, math.floor(number * own_fps / pace + 0.5)) for number in range(count)]
    return indices, pace


@contextmanager
def _file_of(source: VideoInput) -> Iterator[Path]:
    # OpenCV reads only files.
    if isinstance(source, Path):
        try:
            check_regular(source)
        except ValueError as error:
            raise ValueError(f"the video file {error}") from None
        yield source
        return
    with NamedTemporaryFile(suffix=".video") as file:
        file.write(source)
        file.flush()
        yield Path(file.name)
