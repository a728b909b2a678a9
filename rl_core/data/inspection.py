"""Looks at a user's own data and finds out how to read it, for `sightline init`."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from rl_core.data.column_guesses import NamedColumns, Values, guess_columns
from rl_core.files import is_regular, lies_below
from rl_core.sources.columns import Columns, items_of
from rl_core.sources.conversation import read_conversation
from rl_core.sources.hub import HubSource
from rl_core.sources.local import LocalSource
from rl_core.sources.tables import FileTable, RawRow, TableReader

_SAMPLED_ROWS = 64
_TRIED_PATHS = 20
_TRIED_FOLDERS = 100


@dataclass(frozen=True, kw_only=True, slots=True)
class Inspection:
    """The data as a config names it, with the guessed columns; the `format` of a local source or "hub"; its rows; the
    names of all columns; and a sentence about each guess among several possibilities."""

    source: LocalSource | HubSource
    kind: str
    row_count: int
    columns: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()


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
    sample: list[Values] = [
        raw.values for raw in islice(table.raw_rows(), _SAMPLED_ROWS) if isinstance(raw.values, dict)
    ]
    columns, doubts = guess_columns(table.place, names, sample, named)
    source = source.model_copy(update={"columns": columns})
    if isinstance(source, LocalSource) and isinstance(table, FileTable) and source.media_dir is None:
        folder, doubt = find_media_folder(table, source.columns, folder_of_rows=table.files[0].parent)
        source = source.model_copy(update={"media_dir": folder and str(folder)})
        doubts += [doubt] if doubt else []
    return Inspection(source=source, kind=kind, row_count=table.row_count, columns=names, doubts=tuple(doubts))


def find_media_folder(table: TableReader, columns: Columns, *, folder_of_rows: Path) -> tuple[Path | None, str | None]:
    """The `media_dir` of a table, None for the data file's own folder; and a sentence about the choice, or why none was
    made."""
    sample = list(islice(_named_paths(islice(table.raw_rows(), _SAMPLED_ROWS), columns), _TRIED_PATHS))
    if not sample:
        return None, None
    if any(path.startswith("/") for path in sample):
        return _around(_named_paths(table.raw_rows(), columns), folder_of_rows)
    found = {folder: _number_there(sample, folder) for folder in _candidates(folder_of_rows)}
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


def _named_paths(rows: Iterable[RawRow], columns: Columns) -> Iterator[str]:
    """Every path of an image or video that a row names. Other faults of a row are ignored."""
    for raw in rows:
        if not isinstance(raw.values, dict):
            continue
        for item in _media(raw.values, columns):
            path = item.get("path") if isinstance(item, Mapping) and not item.get("bytes") else item
            if isinstance(path, str) and path and "\0" not in path and "://" not in path[:10]:
                yield path


def _media(values: Mapping[str, Any], columns: Columns) -> Iterator[Any]:
    yield from items_of(values, columns.image_key)
    yield from items_of(values, columns.video_key)
    turns = values.get(columns.prompt_key)
    if isinstance(turns, list | tuple):
        try:
            asked = read_conversation(turns, is_answered=columns.answer_key == columns.prompt_key)
        except ValueError:
            return
        yield from (*asked.images, *asked.videos)
