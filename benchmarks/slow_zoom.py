"""A `zoom` whose answer takes its time, for benchmarks/conversations.py."""

import random
import time
from typing import Any, Final

from PIL import Image

MEAN_SECONDS: Final = 0.1
_SIDE: Final = 84


def zoom(sample: Any, x1: int, y1: int, x2: int, y2: int) -> Image.Image:
    """Look at a part of the picture.

    Args:
        x1: Left edge in pixels.
        y1: Upper edge in pixels.
        x2: Right edge in pixels.
        y2: Lower edge in pixels.
    """
    # As of many tools: most answers come soon, and a few take several times as long.
    seconds = random.Random(f"{sample.prompt_uid} {sample.sample_index}").expovariate(1 / MEAN_SECONDS)  # noqa: S311 - no secret
    time.sleep(min(seconds, 6 * MEAN_SECONDS))
    return sample.images()[0].crop((x1, y1, x2, y2)).resize((_SIDE, _SIDE))
