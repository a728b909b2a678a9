"""Finds the folder of the images and videos whose paths the rows of a table name."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from rl_core.files import is_regular, lies_below
from rl_core.sources.columns import Columns, items_of
from rl_core.sources.conversation import read_conversation
from rl_core.sources.tables import RawRow, TableReader

_TRIED_ROWS = 64
_TRIED_PATHS = 20
_TRIED_FOLDERS = 100


def find_media_folder(table: TableReader, columns: Columns, *, beside: Path) -> tuple[Path | None, str | None]:
    """Find the `media_dir` of a table.

    Args:
        table: The rows.
        columns: The columns that name images and videos.
        beside: The folder of the data file, from which relative paths start unless `media_dir` is set.

    Returns:
        The folder, or None for the data file's own folder; and a sentence about the choice, or why none was made.
    """
    sample = list(islice(_named_paths(islice(table.raw_rows(), _TRIED_ROWS), columns), _TRIED_PATHS))
    if not sample:
        return None, None
    if any(path.startswith("/") for path in sample):
        return _around(_named_paths(table.raw_rows(), columns), beside)
    found = {folder: _number_there(sample, folder) for folder in _candidates(beside)}
    best = max(found, key=lambda folder: found[folder])  # the first of equal ones is the data file's own folder
    if found[best] == found[beside]:
        return None, None
    return best, f"media_dir: images and videos were found from {best}"


def _around(paths: Iterable[str], beside: Path) -> tuple[Path | None, str | None]:
    """The folder that contains the files of all absolute paths, and a sentence about it."""
    folders = {Path(os.path.normpath(path)).parent for path in paths if path.startswith("/")}
    folder = Path(os.path.commonpath(folders))
    if lies_below(folder, beside):
        return None, None
    if folder == Path("/"):
        return None, "media_dir: images and videos lie in folders without a common parent: set it with --media-dir"
    return folder, f"media_dir: all images and videos lie in {folder}; no other file of this machine is opened as one"


def _candidates(beside: Path) -> Iterator[Path]:
    """Folders from which relative paths usually start; the data file's own folder is the first."""
    yield beside
    yield beside.absolute().parent
    yield Path.cwd()
    yield from islice((child for child in sorted(beside.iterdir()) if child.is_dir()), _TRIED_FOLDERS)


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
