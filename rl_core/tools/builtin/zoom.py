"""The tool `zoom`: a part of a picture of the conversation, from the picture as it was before it was reduced for the
prompt."""

import math
from collections.abc import Callable
from typing import Final

from rl_core.config.tools import Coordinates
from rl_core.data.crops import PARTS, Crop
from rl_core.data.pixels import fitted_size
from rl_core.families.vision import ImageSize
from rl_core.tools.tool import Picture, ToolSample

_UNITS: Final = {
    "pixels": "in pixels of the picture as you see it",
    "relative_1000": "in thousandths of the picture's width or height",
}


def zoom_tool(coordinates: Coordinates, *, min_pixels: int, max_pixels: int) -> Callable[..., Picture]:
    """The function, whose crops have an area within the limits, in pixels."""
    unit = _UNITS[coordinates]

    def zoom(sample: ToolSample, x1: float, y1: float, x2: float, y2: float, image: int = 1) -> Picture:
        if not 1 <= image <= len(sample.pictures):
            raise ValueError(f"there is no image {image}; the conversation has {len(sample.pictures)}")
        if not all(map(math.isfinite, (x1, y1, x2, y2))):
            raise ValueError("an edge is no finite number")
        picture = sample.pictures[image - 1]
        width, height = picture.shown if coordinates == "pixels" else (1000, 1000)
        inside = (_clipped(x1 / width), _clipped(y1 / height), _clipped(x2 / width), _clipped(y2 / height))
        box = _within(picture.box, inside)
        if round(PARTS * box[0]) >= round(PARTS * box[2]) or round(PARTS * box[1]) >= round(PARTS * box[3]):
            raise ValueError("the part is empty: x1 < x2 and y1 < y2 must hold inside the picture")
        return crop_of(picture, box, min_pixels=min_pixels, max_pixels=max_pixels)

    zoom.__doc__ = f"""Look at a part of an image, enlarged.

    Args:
        x1: Left edge of the part, {unit}.
        y1: Upper edge of the part, {unit}.
        x2: Right edge of the part, {unit}.
        y2: Lower edge of the part, {unit}.
        image: Number of the image, from 1, in the order in which you were shown them.
    """
    return zoom


def crop_of(picture: Picture, box: tuple[float, float, float, float], *, min_pixels: int, max_pixels: int) -> Picture:
    """The part of a picture's parent with these edges."""
    edges = (round(PARTS * box[0]), round(PARTS * box[1]), round(PARTS * box[2]), round(PARTS * box[3]))
    width, height = picture.parent_size
    pixels = max(1, round((box[2] - box[0]) * width)), max(1, round((box[3] - box[1]) * height))
    size: ImageSize = fitted_size(pixels, min_pixels=min_pixels, max_pixels=max_pixels)
    crop = Crop(picture.parent, edges, size)
    return Picture(crop.uid, size, size, picture.parent, box, picture.parent_size)


def _clipped(place: float) -> float:
    return min(1.0, max(0.0, place))


def _within(
    outer: tuple[float, float, float, float], inner: tuple[float, float, float, float]
) -> tuple[float, float, float, float]:
    """Edges inside a part, as edges of the whole."""
    width, height = outer[2] - outer[0], outer[3] - outer[1]
    return (
        outer[0] + inner[0] * width,
        outer[1] + inner[1] * height,
        outer[0] + inner[2] * width,
        outer[1] + inner[3] * height,
    )
