"""A part of a picture as a recipe: its uid says how to cut it, so every process makes it again and nobody stores it."""

import re
from dataclasses import dataclass
from typing import Final

from PIL import Image

from rl_core.families.vision import ImageSize

PARTS: Final = 10_000
"""Parts of a side in which the edges of a crop are written: fine enough for each pixel of a large photograph."""

_UID: Final = re.compile(r"crop-(.+)-(\d+)-(\d+)-(\d+)-(\d+)-(\d+)x(\d+)")


@dataclass(frozen=True, slots=True)
class Crop:
    """A part of the picture `parent`: left, top, right and bottom edge in `PARTS` of its sides, scaled to a size in
    pixels."""

    parent: str
    box: tuple[int, int, int, int]
    size: ImageSize

    @property
    def uid(self) -> str:
        """Identifies the crop as an image; it can be the name of a file."""
        return f"crop-{self.parent}-{'-'.join(map(str, self.box))}-{self.size[0]}x{self.size[1]}"

    @classmethod
    def of_uid(cls, uid: str) -> "Crop | None":
        """The inverse of `uid`; None for the uid of a stored image."""
        found = _UID.fullmatch(uid)
        if found is None:
            return None
        left, top, right, bottom, width, height = map(int, found.groups()[1:])
        return cls(found[1], (left, top, right, bottom), (width, height))

    def cut(self, picture: Image.Image) -> Image.Image:
        """The crop of the parent, or of a copy of it with another number of pixels. At least one pixel is cut."""
        left, top, right, bottom = self.box
        x, y = left * picture.width // PARTS, top * picture.height // PARTS
        edge = max(x + 1, -(-right * picture.width // PARTS)), max(y + 1, -(-bottom * picture.height // PARTS))
        return picture.crop((x, y, *edge)).resize(self.size)
