"""Finds the column with the images of a table, by its name and by what its values are, and those that are left over."""

from collections.abc import Collection, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from PIL import Image

from rl_core.data.pixels import read_image
from rl_core.sources.media import IMAGE_NAMES, UNREAD_ENDINGS, images_in, is_image_name, media_items, path_named
from rl_core.wording import shortened

_TRIED = 20
_SHOWN = 60


class Pictures(NamedTuple):
    """The column with images, None if there is none; whether its name is a usual one; and a sentence about each further
    column that holds images, or whose name says so."""

    column: str | None
    is_usual: bool
    unused: tuple[str, ...]


def find_pictures(
    names: Sequence[str], sample: Sequence[dict[str, Any]], *, folders: Sequence[Path], chosen: str | None = None
) -> Pictures:
    """Find the images among the columns `names`, of which a person may have `chosen` one. Relative paths are tried from
    each of `folders`."""
    usual = sorted((name for name in names if is_image_name(name)), key=lambda name: IMAGE_NAMES.index(name.lower()))
    others = [name for name in names if not is_image_name(name)]
    items = {name: list(_items(sample, name)) for name in names}
    shown = [name for name in usual if _shows(items[name], folders)]
    shown += [name for name in others if _shows([item for item in items[name] if _is_alike(item)], folders)]
    alike = [name for name in usual if any(map(_is_alike, items[name]))]
    empty = [name for name in usual if not items[name]]  # rows outside the sample may have images
    column = chosen or next(iter([*shown, *alike, *empty]), None)
    read = column if column and items.get(column) else None
    unused = [
        _why_unused(name, items[name][0], folders, shows=name in shown, read=read)
        for name in dict.fromkeys([*usual, *shown])
        if name != column and items[name]
    ]
    return Pictures(column, column in usual, tuple(unused))


def _items(sample: Sequence[dict[str, Any]], name: str) -> Iterator[Any]:
    """The first image of each sampled row that has one."""
    cells = (media_items(row.get(name)) for row in sample)
    return islice((items[0] for items in cells if items), _TRIED)


def _shows(items: Collection[Any], folders: Sequence[Path]) -> bool:
    return any(_why_no_image(item, folders) is None for item in items)


def _is_alike(item: Any) -> bool:
    """Whether a value is an image by its form, as far as that can be told without reading it."""
    if not isinstance(item, str):
        return isinstance(item, bytes | Path | Image.Image)
    path = path_named(item)
    return path is None or path.lower().endswith((*Image.registered_extensions(), *UNREAD_ENDINGS))


def _why_no_image(item: Any, folders: Sequence[Path]) -> str | None:
    """Why a value is no image; None if it is one. Of a path, what is wrong in the first of the folders."""
    reason = None
    for folder in folders if path_named(item) is not None else folders[:1]:
        try:
            for image in images_in(item, media_dir=folder):
                read_image(image)
            return None
        except ValueError as error:
            reason = reason or str(error)
    return reason


def _why_unused(name: str, item: Any, folders: Sequence[Path], *, shows: bool, read: str | None) -> str:
    if shows:
        return f"column {name!r} holds images too, and only {read!r} is read (the other one: --image-key {name})"
    is_none = f"column {name!r} has the name of a column with images, and its first value {_short(item)} is none"
    return f"{is_none}: {_why_no_image(item, folders)}" + (f"; the images are those of {read!r}" if read else "")


def _short(item: Any) -> str:
    return repr(shortened(str(item), _SHOWN))
