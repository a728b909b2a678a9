"""Reads the cell of a row that holds images or videos, in the same way for every kind of data.

A cell holds nothing, one image, or a list of them, which in a CSV file is a text. An image is a PIL image, encoded
bytes, a path, base64, a data URL, or a mapping with one of these: `{"bytes": ...}`, `{"path": ...}`, or OpenAI's
`{"image_url": {"url": ...}}`.
"""

import ast
import base64
import json
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote_to_bytes

from PIL import Image

from rl_core.files import lies_below
from rl_core.sources.rows import ImageInput, VideoInput
from rl_core.wording import shortened

IMAGE_NAMES: Final = (
    *(
        "images",
        "image",
        "image_path",
        "image_paths",
        "img",
        "imgs",
        "img_path",
        "picture",
        "pictures",
        "photo",
        "photos",
    ),
    *("image_url", "image_urls", "image_base64", "img_base64", "file_name"),
)
"""Usual names of a column with images, in the order in which they are preferred."""

UNREAD_ENDINGS: Final = (".heic", ".heif", ".jxl", ".svg")
"""Endings of images that no installed decoder reads. They are taken for images, so that their rows are refused."""

MEDIUM_KEYS: Final = ("bytes", "path", "url", "base64", "image", "image_url", "video", "video_url")
"""Keys of a mapping that may hold an image or a video, or a mapping that does."""

_NUMBER: Final = re.compile(r"[_ -]?[0-9]+|[_ -][a-z]$")
_HUMP: Final = re.compile(r"(?<=[a-z])(?=[A-Z])")
_COUNT: Final = r"(?:num|n|number[_ -]of|total|has|is|no|with|without)"
_DEEPEST = 8
_SHOWN = 60
_SHORTEST_BASE64 = 32  # the smallest image has more
_LONGEST_PATH = 4096
_LONGEST_NAME = 255
_ENCODED: Final = re.compile(
    rb"\x89PNG|\xff\xd8\xff|GIF8|RIFF|BM.{4}\0{4}|II\*\0|MM\0\*|\0{3}\x0cjP|\xff\x4f\xff\x51|.{4}ftyp|\x1aE\xdf\xa3",
    re.DOTALL,
)
"""The beginning of encoded images and videos. Base64 is recognised by it."""


def is_image_name(column: str) -> bool:
    """Whether a column has one of the usual names, which may be numbered, or have a word before it (`left_image`)."""
    return series_of(column) in USUAL_SERIES


def series_of(column: str) -> str:
    """What the names of columns have in common that hold the images of a row: `image_1` and `image_2`, `image` and
    `image2`, `image_a` and `image_b`, `image` and `images`, `left_image` and `right_image`, `image_left` and
    `image_right`."""
    name = _stem(column)
    if name in _STEMS:
        return name
    if last := _WORD_FIRST.fullmatch(name):
        return f"{_WORD} {last[1]}"
    first = _WORD_LAST.fullmatch(name)
    return f"{first[1]} {_WORD}" if first else name


def is_of_words(series: str) -> bool:
    """Whether the columns of a series are told apart by words, which do not say their order."""
    return _WORD in series


def place_in_series(column: str) -> tuple[str | int, ...]:
    """Sorts the columns of a series: `image`, `image_2`, `image_10`, `images`."""
    return tuple(int(part) if part.isdecimal() else part for part in re.split(r"([0-9]+)", column.lower()))


def _stem(column: str) -> str:
    return _NUMBER.sub("", _HUMP.sub("_", column).lower()).removesuffix("s")


_WORD: Final = "..."
_STEMS: Final = tuple(dict.fromkeys(map(_stem, IMAGE_NAMES)))
_PICTURES: Final = tuple(stem for stem in _STEMS if stem != "file_name")  # audio_file_name
_WORD_FIRST: Final = re.compile(rf"(?!{_COUNT}[_ -]).+?[_ -]({'|'.join(_PICTURES)})")
_WORD_LAST: Final = re.compile(rf"({'|'.join(_PICTURES)})[_ -].+")

USUAL_SERIES: Final = (*_STEMS, *(f"{_WORD} {stem}" for stem in _PICTURES))
"""The series of the usual names, in the order in which they are preferred. A word behind one (`image_left`) may as well
say that the column describes an image."""


def media_items(cell: Any) -> tuple[Any, ...]:
    """The images or videos in a cell as they stand there, without those that are empty."""
    return _items(cell, depth=0)


def images_in(cell: Any, *, media_dir: Path, caches: Sequence[Path] = ()) -> tuple[ImageInput, ...]:
    """The images in a cell. Raises ValueError with the reason for a BadRow: a value that is no image, an address, or a
    path that leads out of `media_dir`, where relative paths start, and `caches`."""
    forms = "bytes, base64, a path or a PIL image"
    return tuple(
        item if isinstance(item, Image.Image) else _medium(item, media_dir, caches, kind="image", forms=forms)
        for item in media_items(cell)
    )


def videos_in(cell: Any, *, media_dir: Path, caches: Sequence[Path] = ()) -> tuple[VideoInput, ...]:
    """The videos in a cell, as `images_in` reads images."""
    return tuple(
        _medium(item, media_dir, caches, kind="video", forms="bytes, base64 or a path") for item in media_items(cell)
    )


def path_named(item: Any) -> str | None:
    """The path that an item of `media_items` is; None for any other."""
    if not isinstance(item, str | Path):
        return None
    text = str(item)
    is_other = text.startswith("data:") or "://" in text[:10] or _begins_base64(text)
    return None if is_other or _why_no_path(text) else text


def _items(cell: Any, *, depth: int) -> tuple[Any, ...]:
    if isinstance(cell, str) and cell.lstrip().startswith(("[", "{")):
        cell = _read_list(cell)
    if _is_empty(cell):
        return ()
    if isinstance(cell, list | tuple) and depth < _DEEPEST:
        return tuple(item for each in cell for item in _items(each, depth=depth + 1))
    if isinstance(cell, Mapping) and depth < _DEEPEST:
        held = [cell[key] for key in MEDIUM_KEYS if key in cell]
        found = next((value for value in held if not _is_empty(value)), None)
        return _items(found, depth=depth + 1) if held else (cell,)
    return (cell.removeprefix("file://") if isinstance(cell, str) else cell,)


def _is_empty(value: Any) -> bool:
    match value:
        case str():
            return not value.strip()
        case float():
            return math.isnan(value)
        case None | bytes() | list() | tuple() | Mapping():
            return not value
        case _:
            return False


def _read_list(text: str) -> Any:
    """The list or mapping that a text is, in the notation of JSON or of Python; a text that is none stays a text."""
    for read in (json.loads, ast.literal_eval):
        try:
            value = read(text.strip())
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):  # what literal_eval may raise
            continue
        if isinstance(value, list | tuple | dict):
            return value
    return text


def _medium(value: Any, media_dir: Path, caches: Sequence[Path], *, kind: str, forms: str) -> bytes | Path:
    match value:
        case bytes():
            return value
        case str() if value.startswith("data:"):
            return _of_data_url(value, kind)
        case str() if "://" in value[:10]:
            raise ValueError(f"{_short(value)} is an address; {kind}s are read from files, download it first")
        case str() if _begins_base64(value):
            return _decoded(value, f"the base64 of the {kind}")
        case str() | Path():
            return _media_file(str(value), media_dir, caches, kind=kind)
        case _:
            raise ValueError(f"the {kind} is {type(value).__name__}, not {forms}")


def _of_data_url(text: str, kind: str) -> bytes:
    head, _, data = text.partition(",")
    encoded = unquote_to_bytes(data)
    if head.endswith(";base64"):
        encoded = _decoded(encoded.decode("ascii", errors="replace"), f"the data URL of the {kind}")
    if not encoded:
        raise ValueError(f"the data URL of the {kind} holds nothing: {_short(text)}")
    return encoded


def _begins_base64(text: str) -> bool:
    if len(text) < _SHORTEST_BASE64:
        return False
    try:
        return _ENCODED.match(_from_base64(text[:24])) is not None
    except ValueError:
        return False


def _decoded(text: str, what: str) -> bytes:
    try:
        return _from_base64(text)
    except ValueError as error:
        raise ValueError(f"{what} is damaged: {error} ({_short(text)})") from None


def _from_base64(text: str) -> bytes:
    """The bytes of a text in the usual alphabet or in that of addresses, with or without padding and line breaks."""
    packed = "".join(text.split()).replace("-", "+").replace("_", "/").rstrip("=")
    return base64.b64decode(packed + "=" * (-len(packed) % 4), validate=True)


def _media_file(path: str, media_dir: Path, caches: Sequence[Path], *, kind: str) -> Path:
    """The file that a row names, which must not be any file of this machine."""
    if why := _why_no_path(path):
        raise ValueError(f"{_short(path)} is no {kind} and no path: {why}")
    file = media_dir / path
    if any(lies_below(file, folder) for folder in (media_dir, *caches)):
        return file
    raise ValueError(f"the file {path} leads out of {media_dir}; set media_dir to the folder that holds all media")


def _why_no_path(text: str) -> str | None:
    if "\0" in text:
        return "it holds a NUL character, which no file's name has"
    if len(text) > _LONGEST_PATH or any(len(name) > _LONGEST_NAME for name in text.split("/")):
        return f"it has {len(text)} letters"
    return None


def _short(text: str) -> str:
    return repr(shortened(text, _SHOWN))
