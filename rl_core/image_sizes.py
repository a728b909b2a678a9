"""The sizes of a picture, for rewards that read places in it. Imports no library, because scoring processes load it."""

from typing import NamedTuple


class ImageSizes(NamedTuple):
    """Width and height in pixels: of the upright picture of the row, and of what the model sees of it, in whole
    patches."""

    original: tuple[int, int]
    shown: tuple[int, int]
