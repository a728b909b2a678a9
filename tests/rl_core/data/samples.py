"""Small images, sources and configs for the data tests."""

from io import BytesIO
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from rl_core.config.data import DataConfig
from rl_core.sources.counting import CountingSource
from rl_core.sources.local import LocalSource


def png_bytes(size: tuple[int, int] = (60, 60), colour: tuple[int, int, int] = (200, 30, 30)) -> bytes:
    buffer = BytesIO()
    Image.new("RGB", size, colour).save(buffer, format="PNG")
    return buffer.getvalue()


def write_video(path: Path, frames: np.ndarray, *, fps: float) -> None:
    """[T, H, W, 3] frames as an AVI of JPEGs, which every build of OpenCV writes and reads."""
    height, width = frames.shape[1:3]
    writer = cv2.VideoWriter(str(path), cv2.VideoWriter.fourcc(*"MJPG"), fps, (width, height))
    for frame in frames:
        writer.write(np.ascontiguousarray(frame[..., ::-1]))
    writer.release()


def counting(size: int = 8, *, scene_seed: int = 1, **options: Any) -> CountingSource:
    return CountingSource(type="counting", size=size, scene_seed=scene_seed, **options)


def data_config(**options: Any) -> DataConfig:
    """A small counting run; options replace its fields."""
    defaults: dict[str, Any] = {
        "train": counting(12, scene_seed=1),
        "validation": counting(6, scene_seed=2),
        "max_prompt_length": 200,
    }
    return DataConfig(**(defaults | options))


def local(path: object, **options: Any) -> LocalSource:
    return LocalSource(type="local", path=str(path), **options)


def write_broken_text(path: Path) -> None:
    """A Parquet file with three rows; `note` of the second is no UTF-8, which Parquet does not check."""
    notes = pa.Array.from_buffers(pa.string(), 3, pa.array([b"a", b"b\xff", b"c"]).buffers())
    pq.write_table(pa.table({"problem": ["0?", "1?", "2?"], "answer": ["0", "1", "2"], "note": notes}), path)
