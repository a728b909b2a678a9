"""Looks at a user's own data and finds out how to read it, for `sightline init`."""

import os
import random
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from PIL import Image

from rl_core.data.answer_guesses import classes_sentence
from rl_core.data.column_guesses import ANSWER_NAMES, VIDEO_NAMES, NamedColumns, Values, guess_columns
from rl_core.data.pixels import read_image
from rl_core.files import is_regular, lies_below
from rl_core.sources.columns import Columns
from rl_core.sources.conversation import read_conversation
from rl_core.sources.hub import HubSource
from rl_core.sources.local import LocalSource
from rl_core.sources.media import (
    UNREAD_ENDINGS,
    USUAL_SERIES,
    images_in,
    is_image_name,
    is_of_words,
    media_items,
    path_named,
    place_in_series,
    series_of,
)
from rl_core.sources.options import ColumnsKey, columns_named
from rl_core.sources.tables import FileTable, TableReader
from rl_core.wording import shortened

_SAMPLED_ROWS = 64
_TRIED_PATHS = 20
_TRIED_FOLDERS = 100
_TRIED = 20
_SHOWN = 60
_ID_NAMES = ("id", "ids", "uid", "idx", "index", "key")


class Pictures(NamedTuple):
    """The columns with images, in their order; whether their names are usual ones; and a sentence about each further
    column that holds images, or whose name says so."""

    columns: tuple[str, ...]
    is_usual: bool
    unused: tuple[str, ...]

    @property
    def key(self) -> ColumnsKey | None:
        """The columns as a config names them."""
        return self.columns if len(self.columns) > 1 else next(iter(self.columns), None)


def find_pictures(
    names: Sequence[str], sample: Sequence[dict[str, Any]], *, folders: Sequence[Path], chosen: Sequence[str] = ()
) -> Pictures:
    """Find the images among the columns `names`, of which a person may have `chosen` some. Columns whose names differ
    in a number, in being plural, or in a word are used together; words leave them in the order of the table. Relative
    paths are tried from each of `folders`."""
    names = sorted(names, key=place_in_series)
    usual = [name for series in USUAL_SERIES for name in names if series_of(name) == series]
    others = [name for name in names if not is_image_name(name)]
    items = {name: list(_items(sample, name)) for name in names}
    shown = [name for name in usual if _shows(items[name], folders)]
    shown += _shown_by_content(others, items, folders)
    alike = [name for name in usual if any(map(_is_alike, items[name]))]
    empty = [name for name in usual if not items[name]]  # rows outside the sample may have images
    first = next(iter([*shown, *alike, *empty]), None)
    series = [name for name in names if first and series_of(name) == series_of(first)]
    series = [
        name
        for name in series
        if name in shown
        or any(map(_is_alike, items[name]))
        or (not items[name] and (name in usual or not is_of_words(series_of(name))))
    ]
    if first and is_of_words(series_of(first)):
        places = [name for values in sample for name in values]
        series.sort(key=lambda name: places.index(name) if name in places else len(places))
    columns = tuple(chosen) or _without_copies(series, sample)
    read = [name for name in columns if items.get(name)]
    read_files = _files((item for name in read for row in sample for item in media_items(row.get(name))), folders)
    unused = [
        _why_unused(name, items[name][0], folders, shows=name in shown, read=read)
        for name in dict.fromkeys([*usual, *shown])
        if name not in columns and items[name]
        # An id may be the name of the file whose path another column has.
        if name in usual or any(map(_is_alike, items[name])) or not _files(items[name], folders) <= read_files
    ]
    return Pictures(columns, is_usual=set(columns) <= set(usual), unused=tuple(unused))


def _shown_by_content(names: Sequence[str], items: Mapping[str, Sequence[Any]], folders: Sequence[Path]) -> list[str]:
    """The columns of any name that hold images, the likeliest first: an id, or a number, may be the name of a file by
    chance. An answer is none."""

    def is_tried(name: str, item: Any) -> bool:
        return _is_alike(item) or (name.lower() not in ANSWER_NAMES and bool(_files([item], folders)))

    def doubt(name: str) -> tuple[int, int]:
        if any(map(_is_alike, items[name])):
            return 0, 0
        texts = {*map(str, items[name])}
        rank = 1 if any("/" in text for text in texts) else 3 if name.lower() in _ID_NAMES else 2
        return rank, -len(texts)

    found = [name for name in names if _shows([item for item in items[name] if is_tried(name, item)], folders)]
    return sorted(found, key=doubt)


def _files(items: Iterable[Any], folders: Sequence[Path]) -> set[str]:
    """The files that these values name."""
    paths = [path for item in items if (path := path_named(item)) is not None]
    found = (next((folder / path for folder in folders if _number_there([path], folder)), None) for path in paths)
    return {os.path.realpath(file) for file in found if file is not None}


def _without_copies(series: Sequence[str], sample: Sequence[dict[str, Any]]) -> tuple[str, ...]:
    """The columns of a series without those that hold nothing but images of another one, as `image` beside `images`
    may. Numbers say that each column has images of its own."""
    kept = list(series)
    for name in reversed(series):
        others = [other for other in kept if other != name and not re.search("[0-9]", name + other)]
        if any(_is_copy(name, other, sample) for other in others):
            kept.remove(name)
    return tuple(kept)


def _is_copy(name: str, other: str, sample: Sequence[dict[str, Any]]) -> bool:
    pairs = [(media_items(row.get(name)), media_items(row.get(other))) for row in sample]
    return any(ours for ours, _ in pairs) and all(one in theirs for ours, theirs in pairs for one in ours)


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


def _why_unused(name: str, item: Any, folders: Sequence[Path], *, shows: bool, read: Sequence[str]) -> str:
    are_read = " and ".join(map(repr, read))
    if shows:
        instead = f"the other one: --image-key {name}; all: --image-key {','.join([*read, name])}"
        return f"column {name!r} holds images too, and only {are_read} is read ({instead})"
    shown = repr(shortened(str(item), _SHOWN))
    is_none = f"column {name!r} has the name of a column with images, and its first value {shown} is none"
    return f"{is_none}: {_why_no_image(item, folders)}" + (f"; the images are those of {are_read}" if read else "")


@dataclass(frozen=True, kw_only=True, slots=True)
class Inspection:
    """The data as a config names it, with the guessed columns; the `format` of a local source or "hub"; its rows; the
    names of all columns; a sentence about each guess among several possibilities, and one about each column that looks
    like images and is not used; and whether any of the rows looked at has an image or a video."""

    source: LocalSource | HubSource
    kind: str
    row_count: int
    columns: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()
    unused: tuple[str, ...] = ()
    has_media: bool = True


def inspect_data(source: LocalSource | HubSource, named: NamedColumns | None = None) -> Inspection:
    """Look at data, and guess the columns that are not `named` and, unless it has a `media_dir`, where its images are.
    Raises ValueError where nothing can be read, or no column looks like a question or an answer."""
    named = named or NamedColumns()
    if isinstance(source, HubSource):
        return _inspect_table(source.reader(), source, named, kind="hub")
    reader = source.reader()
    if isinstance(reader, FileTable):
        reader.check_rows()
        return _inspect_table(reader, source, named, kind=reader.kind)
    if unused := named.given():
        raise ValueError(f"{source.path} is a {reader.kind}, which has no columns to be named ({', '.join(unused)})")
    return Inspection(source=source, kind=reader.kind, row_count=reader.row_count)


def _inspect_table(
    table: TableReader, source: LocalSource | HubSource, named: NamedColumns, *, kind: str
) -> Inspection:
    names = tuple(sorted(table.column_names()))
    sample = list(_spread(table))
    pictures = _find_pictures(table, source, names, sample, named)
    columns, doubts = guess_columns(table.place, names, sample, replace(named, image_key=pictures.key))
    if not named.image_key and len(pictures.columns) > 1:
        doubts.append(f"image_key: images are those of {' and '.join(map(repr, pictures.columns))}, in this order")
    elif not named.image_key and not pictures.is_usual:
        doubts.append(f"image_key: {pictures.key!r} holds images")
    names_of = table.class_names().get(columns.answer_key)
    if names_of and not (named.class_names or columns.options_key or columns.answer_pattern):
        columns = columns.model_copy(update={"class_names": tuple(names_of)})
        doubts.append(classes_sentence(columns.answer_key, names_of))
    source = source.model_copy(update={"columns": columns})
    if isinstance(source, LocalSource) and isinstance(table, FileTable) and source.media_dir is None:
        folder, doubt = find_media_folder(table, sample, source.columns, folder_of_rows=table.files[0].parent)
        source = source.model_copy(update={"media_dir": folder and str(folder)})
        doubts += [doubt] if doubt else []
    return Inspection(
        source=source,
        kind=kind,
        row_count=table.row_count,
        columns=names,
        doubts=tuple(doubts),
        unused=pictures.unused,
        has_media=any(True for values in sample for _ in _media(values, columns)),
    )


def spread_numbers(count: int) -> frozenset[int]:
    """The numbers of some of `count` rows from all parts of the data, the same ones each time."""
    return frozenset(random.Random(0).sample(range(count), min(count, _SAMPLED_ROWS)))  # noqa: S311 - no secret


def _spread(table: TableReader) -> Iterator[Values]:
    count = table.row_count
    chosen = spread_numbers(count)
    for number, raw in enumerate(islice(table.raw_rows(), count)):
        if number in chosen and isinstance(raw.values, dict):
            yield raw.values


def _find_pictures(
    table: TableReader,
    source: LocalSource | HubSource,
    names: Sequence[str],
    sample: Sequence[Values],
    named: NamedColumns,
) -> Pictures:
    if named.image_key == "":
        return Pictures((), is_usual=True, unused=())
    if source.media_dir is not None:
        folders = [Path(source.media_dir)]
    elif isinstance(table, FileTable):
        folders = [*_candidates(table.files[0].parent), Path("/")]  # paths may be absolute
    else:
        folders = [Path(table.name)]
    taken = {name for key, given in named.given().items() if key != "image_key" for name in given}
    free = [name for name in names if name not in taken and name.lower() not in VIDEO_NAMES]
    return find_pictures(free, sample, folders=folders, chosen=columns_named(named.image_key))


def find_media_folder(
    table: TableReader, sample: Iterable[Values], columns: Columns, *, folder_of_rows: Path
) -> tuple[Path | None, str | None]:
    """The `media_dir` of a table, None for the data file's own folder; and a sentence about the choice, or why none was
    made."""
    tried = list(islice(_named_paths(sample, columns), _TRIED_PATHS))
    if not tried:
        return None, None
    if any(path.startswith("/") for path in tried):
        every_row = (raw.values for raw in table.raw_rows() if isinstance(raw.values, dict))
        return _around(_named_paths(every_row, columns), folder_of_rows)
    found = {folder: _number_there(tried, folder) for folder in _candidates(folder_of_rows)}
    best = max(found, key=lambda folder: found[folder])  # the first of equal ones is the data file's own folder
    if found[best] == found[folder_of_rows]:
        return None, None
    return best, f"media_dir: images and videos were found from {best}"


def _around(paths: Iterable[str], folder_of_rows: Path) -> tuple[Path | None, str | None]:
    folders = {Path(os.path.normpath(path)).parent for path in paths if path.startswith("/")}
    folder = Path(os.path.commonpath(folders))
    if lies_below(folder, folder_of_rows):
        return None, None
    if folder == Path("/"):
        return None, "media_dir: images and videos lie in folders without a common parent: set it with --media-dir"
    return folder, f"media_dir: all images and videos lie in {folder}; no other file of this machine is opened as one"


def _candidates(folder_of_rows: Path) -> Iterator[Path]:
    yield folder_of_rows
    yield folder_of_rows.absolute().parent
    yield Path.cwd()
    yield from islice((child for child in sorted(folder_of_rows.iterdir()) if child.is_dir()), _TRIED_FOLDERS)


def _number_there(paths: Sequence[str], folder: Path) -> int:
    return sum(is_regular(folder / path) and lies_below(folder / path, folder) for path in paths)


def _named_paths(rows: Iterable[Values], columns: Columns) -> Iterator[str]:
    """Every path of an image or video that a row names. Other faults of a row are ignored."""
    for values in rows:
        for item in _media(values, columns):
            if (path := path_named(item)) is not None:
                yield path


def _media(values: Values, columns: Columns) -> Iterator[Any]:
    for column in (*columns_named(columns.image_key), *columns_named(columns.video_key)):
        yield from media_items(values.get(column))
    turns = values.get(columns.prompt_key)
    if isinstance(turns, list | tuple):
        try:
            asked = read_conversation(turns, is_answered=columns.answer_key == columns.prompt_key)
        except ValueError:
            return
        yield from (*asked.images, *asked.videos)
