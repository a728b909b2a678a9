"""Writes rows of any source to a Parquet file, a few at a time."""

import json
import os
from collections.abc import Collection, Iterable
from io import BytesIO
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from rl_core.files import fsync_folder, fsync_tree, scratch_folder
from rl_core.sources.columns import Columns
from rl_core.sources.local import LocalSource
from rl_core.sources.parquet_rows import json_column
from rl_core.sources.rows import ImageInput, Row, Turn

_WRITTEN_ROWS = 64

_TURNS = pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))
_MEDIA = pa.list_(pa.struct([("bytes", pa.binary()), ("path", pa.string())]))
_USUAL = {"problem": _TURNS, "images": _MEDIA, "videos": _MEDIA}


class RowFile:
    """A Parquet file that is written whole or not at all; `extra` are the names of all other columns of the rows, and
    `columns` those that the rows were read by. An answer that a pattern finds is found again in the file."""

    def __init__(self, path: Path, *, extra: Collection[str], columns: Columns | None = None) -> None:
        self._path = path
        self._extra = list(extra)
        self._names = {usual: _free_name(usual, extra) for usual in (*_USUAL, "answer")}
        self._kept = {} if columns is None else {"options_key": columns.options_key}
        if columns and columns.answer_pattern and columns.answer_key.partition(".")[0] in extra:
            self._kept |= columns.model_dump(include={"answer_key", "answer_pattern", "answer_as", "class_names"})
        self._folders: set[Path] = set()

    def write(self, rows: Iterable[Row]) -> LocalSource:
        """Write all rows, in order, and return the source that reads them."""
        fields = [(self._names[usual], kind) for usual, kind in _USUAL.items()]
        answer = [] if "answer_key" in self._kept else [self._names["answer"]]
        schema = pa.schema([*fields, *map(json_column, [*answer, *self._extra])])
        remaining = iter(rows)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with scratch_folder(self._path) as scratch:
            with pq.ParquetWriter(scratch / self._path.name, schema, compression="zstd") as writer:
                while group := list(islice(remaining, _WRITTEN_ROWS)):
                    writer.write_table(pa.Table.from_pylist([self._record(row) for row in group], schema=schema))
            fsync_tree(scratch)
            os.replace(scratch / self._path.name, self._path)
        fsync_folder(self._path.parent)
        return self._source()

    def _source(self) -> LocalSource:
        names = self._names
        usual = {
            "prompt_key": names["problem"],
            "image_key": names["images"],
            "video_key": names["videos"],
            "answer_key": names["answer"],
        }
        columns = Columns.model_validate({**usual, **self._kept})
        # Paths must not lead out of this folder.
        media_dir = os.path.commonpath(self._folders) if self._folders else None
        return LocalSource(type="local", path=str(self._path), columns=columns, media_dir=media_dir)

    def _record(self, row: Row) -> dict[str, object]:
        turns = [*row.history, Turn(role="user", content=row.question)]
        return {
            self._names["problem"]: [turn._asdict() for turn in turns],
            self._names["images"]: [self._stored(image) for image in row.images],
            self._names["videos"]: [self._stored(video) for video in row.videos],
            self._names["answer"]: json.dumps(row.answer, ensure_ascii=False),  # not in the schema if it is found again
            **{name: json.dumps(value, ensure_ascii=False) for name, value in row.extra.items()},
        }

    def _stored(self, medium: ImageInput) -> dict[str, object]:
        if isinstance(medium, Path):
            self._folders.add(medium.absolute().parent)
            return {"bytes": None, "path": str(medium.absolute())}
        return {"bytes": encoded(medium), "path": None}


def encoded(medium: ImageInput) -> bytes:
    """The bytes of an image or a video; a decoded image is encoded as PNG."""
    if isinstance(medium, bytes):
        return medium
    if isinstance(medium, Path):
        return medium.read_bytes()
    buffer = BytesIO()
    medium.save(buffer, format="PNG")
    return buffer.getvalue()


def _free_name(name: str, taken: Collection[str]) -> str:
    """`name`, made longer until no other column has it."""
    while name in taken:
        name += "_"
    return name
