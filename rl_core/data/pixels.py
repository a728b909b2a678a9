"""Turns an image of a source into the RGB image that the model sees."""

import math
import operator
import re
import struct
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from rl_core.files import read_regular
from rl_core.sources.file_kinds import foreign_kind, read_start
from rl_core.sources.rows import ImageInput

_EXIF_ORIENTATION = 0x0112
_KEPT_FORMATS = ("PNG", "JPEG")
# Pillow reads more formats, but EPS, for example, is a program that it would pass to Ghostscript.
_READ_FORMATS = ("AVIF", "BMP", "GIF", "JPEG", "JPEG2000", "PNG", "PPM", "TGA", "TIFF", "WEBP")
_UNREAD_FORMATS = {
    "HEIC": re.compile(rb".{4}ftyp(hei|hev|mif1|msf1)", re.DOTALL),
    "JPEG XL": re.compile(rb"\xff\x0a|.{4}JXL ", re.DOTALL),
    "SVG": re.compile(rb"\s*(<\?xml.*?)?<svg", re.DOTALL),
    "PDF": re.compile(rb"%PDF"),
}
_LOOKED_AT = 1024
# An uncompressed image with the most pixels that Pillow decodes is smaller. A larger file would fill the memory before
# it is looked at.
_MOST_BYTES = 1 << 30
# What Pillow's decoders raise on damaged files.
_DECODING_ERRORS = (OSError, SyntaxError, ValueError, EOFError, struct.error, Image.DecompressionBombError)


class StoredImage(NamedTuple):
    """An image ready to be stored: PNG or JPEG bytes, its size in pixels, width and height of the source's, and, if it
    was reduced and that is wanted, the bytes of the source."""

    encoded: bytes
    width: int
    height: int
    original: tuple[int, int]
    source: bytes | None = None


def prepare_image(
    source: ImageInput, *, min_pixels: int, max_pixels: int, max_source_pixels: int | None = None
) -> StoredImage:
    """Decode an image completely, convert it to RGB, scale it into the pixel limits, and encode it. PNG and JPEG bytes
    that need no change are kept; any other image becomes a PNG. With `max_source_pixels`, a larger source is kept too,
    of at most so many pixels. Raises ValueError as read_image does."""
    image, original = read_image(source)
    fitted = fit_pixels(image, min_pixels=min_pixels, max_pixels=max_pixels)
    unchanged = original if fitted.size == image.size else None
    kept = None
    if max_source_pixels is not None and fitted.width * fitted.height < image.width * image.height:
        large = fit_pixels(image, min_pixels=1, max_pixels=max_source_pixels)
        kept = original if original is not None and large.size == image.size else encode_png(large)
    return StoredImage(unchanged or encode_png(fitted), fitted.width, fitted.height, image.size, kept)


def read_image(source: ImageInput) -> tuple[Image.Image, bytes | None]:
    """Every pixel of an image as RGB, and its encoded bytes if they are a PNG or JPEG of exactly these pixels. EXIF
    rotation is applied; transparent parts become white; 16-bit gray keeps its upper eight bits; of an animation the
    first frame is taken. Raises ValueError with the reason for a BadRow."""
    data = _read_file(source) if isinstance(source, Path) else source
    try:
        image = Image.open(BytesIO(data), formats=_READ_FORMATS) if isinstance(data, bytes) else data
        image.load()
        _check_range(image)
        rgb = _to_rgb(image)
    except UnidentifiedImageError:
        raise ValueError(_unknown_format(source, data if isinstance(data, bytes) else b"")) from None
    except _DECODING_ERRORS as error:
        raise ValueError(f"the image is damaged: {error}") from None
    keeps_bytes = isinstance(data, bytes) and _is_plain(image)
    return rgb, data if keeps_bytes and isinstance(data, bytes) else None


def check_format(source: ImageInput) -> None:
    """Raises ValueError where the beginning of an image shows that no decoder reads it."""
    if isinstance(source, Image.Image):
        return
    try:
        Image.open(BytesIO(source) if isinstance(source, bytes) else source, formats=_READ_FORMATS).close()
    except UnidentifiedImageError:
        raise ValueError(_unknown_format(source, source if isinstance(source, bytes) else read_start(source))) from None
    except _DECODING_ERRORS as error:
        raise ValueError(f"the image is damaged: {error}") from None


def fit_pixels(image: Image.Image, *, min_pixels: int, max_pixels: int) -> Image.Image:
    """Scale an RGB image so that its area is within limits. By EasyR1's rule it is reduced first, then enlarged, and
    sides are cut to whole pixels; the model's processor rounds them further to whole patches."""
    for size in _fitting_sizes(image.size, min_pixels, max_pixels):
        image = image.resize(size)
    return image


def fitted_size(size: tuple[int, int], *, min_pixels: int, max_pixels: int) -> tuple[int, int]:
    """The size to which `fit_pixels` scales an image."""
    return [size, *_fitting_sizes(size, min_pixels, max_pixels)][-1]


def _fitting_sizes(size: tuple[int, int], min_pixels: int, max_pixels: int) -> Iterator[tuple[int, int]]:
    for area, is_beyond in ((max_pixels, operator.gt), (min_pixels, operator.lt)):
        if is_beyond(math.prod(size), area):
            factor = math.sqrt(area / math.prod(size))
            size = max(1, int(size[0] * factor)), max(1, int(size[1] * factor))
            yield size


def encode_png(image: Image.Image) -> bytes:
    """PNG bytes of an image; speed matters more than size."""
    buffer = BytesIO()
    image.save(buffer, format="PNG", compress_level=2)
    return buffer.getvalue()


def _read_file(path: Path) -> bytes:
    try:
        return read_regular(path, most_bytes=_MOST_BYTES)
    except ValueError as error:
        raise ValueError(f"the image file {error}") from None


def _unknown_format(source: ImageInput, start: bytes) -> str:
    """What is wrong with an image that no decoder takes."""
    name = f"the image {source.name}" if isinstance(source, Path) else "the image"
    kind = next((kind for kind, beginning in _UNREAD_FORMATS.items() if beginning.match(start[:_LOOKED_AT])), None)
    if kind is not None:
        return f"{name} is {kind}, which no installed decoder reads: convert it to PNG or JPEG"
    if (other := foreign_kind(start)) is not None:
        return f"{name} is {other}"
    return f"{name} is of no known format, or its start is damaged"


def _is_plain(image: Image.Image) -> bool:
    """Whether decoding the bytes gives exactly the RGB image: not rotated, without transparency, a single frame."""
    return (
        image.format in _KEPT_FORMATS
        and image.mode == "RGB"
        and "transparency" not in image.info
        and getattr(image, "n_frames", 1) == 1
        and image.getexif().get(_EXIF_ORIENTATION, 1) == 1
    )


def _check_range(image: Image.Image) -> None:
    """Raises ValueError for pixels whose range of values is not known."""
    if image.mode == "F":
        raise ValueError("its pixels are floating-point numbers of unknown range")
    # Pillow uses this mode for 16-bit PPM files too, and scales these to their full range.
    if image.mode == "I" and image.format != "PPM":
        raise ValueError("its pixels are 32-bit whole numbers of unknown range")


def _to_rgb(image: Image.Image) -> Image.Image:
    upright = ImageOps.exif_transpose(image)
    if upright.mode.startswith("I"):
        return _gray16_to_rgb(upright)
    if not upright.has_transparency_data:
        return upright.convert("RGB")
    layer = upright.convert("RGBA")
    paper = Image.new("RGBA", layer.size, (255, 255, 255, 255))
    return Image.alpha_composite(paper, layer).convert("RGB")


def _gray16_to_rgb(image: Image.Image) -> Image.Image:
    """Keep the upper eight bits. Pillow's own conversion would clip every value above 255."""
    values = np.asarray(image).astype(np.int64)
    return Image.fromarray((np.clip(values, 0, 65535) >> 8).astype(np.uint8)).convert("RGB")
