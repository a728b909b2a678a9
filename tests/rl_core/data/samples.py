"""Small images, sources and configs for the data tests."""

from io import BytesIO
from typing import Any

from PIL import Image

from rl_core.config.data import CountingSource, DataConfig, LocalSource


def png_bytes(size: tuple[int, int] = (60, 60), colour: tuple[int, int, int] = (200, 30, 30)) -> bytes:
    buffer = BytesIO()
    Image.new("RGB", size, colour).save(buffer, format="PNG")
    return buffer.getvalue()


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
