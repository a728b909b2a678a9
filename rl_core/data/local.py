"""Local tables: Parquet and JSONL files, folders of them, and the choice of a reader for a path."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from rl_core.config.data import LocalSource
from rl_core.data.columns import RowParser, check_columns
from rl_core.data.geometry3k import ITEM_FILE, Geometry3kReader
from rl_core.data.rows import BadRow, Row, RowReader

FORMATS = ("parquet", "jsonl", "geometry3k")
_BATCH_ROWS = 64
_SPLIT_SHARD = re.compile(r"(?P<split>.+?)-\d+-of-\d+\.parquet")


class FileReader(RowReader, Protocol):
    """A source that lies in files."""

    @property
    def files(self) -> list[Path]:
        """The files that hold rows, in order; files that rows name are not among them."""


@dataclass(frozen=True, kw_only=True)
class ParquetReader:
    """Rows of Parquet files, one after the other."""

    files: list[Path]
    source: LocalSource

    @property
    def name(self) -> str:
        """The path's last part, without its ending."""
        return Path(self.source.path).stem

    @cached_property
    def _schemas(self) -> list[pq.FileMetaData]:
        return [_parquet_metadata(path) for path in self.files]

    def columns(self) -> set[str]:
        """Names of the columns that any file has."""
        return {name for metadata in self._schemas for name in metadata.schema.to_arrow_schema().names}

    def __len__(self) -> int:
        return _limited(sum(metadata.num_rows for metadata in self._schemas), self.source.limit)

    def __iter__(self) -> Iterator[Row | BadRow]:
        for index, (values, path, line) in enumerate(islice(self._values(), self.source.limit)):
            yield _parser(self, path).parse(values, index=index, origin=f"{path.name} row {line}")

    def _values(self) -> Iterator[tuple[dict[str, Any], Path, int]]:
        for path in self.files:
            for line, values in enumerate(_parquet_rows(path)):
                yield values, path, line


@dataclass(frozen=True, kw_only=True)
class JsonlReader:
    """Rows of JSONL files, one after the other; blank lines are no rows."""

    files: list[Path]
    source: LocalSource

    @property
    def name(self) -> str:
        """The path's last part, without its ending."""
        return Path(self.source.path).stem

    def columns(self) -> set[str]:
        """Names of the columns that any row has."""
        parsed = (_json_object(line) for _, _, line in self._lines())
        return {name for values in parsed if isinstance(values, dict) for name in values}

    def __len__(self) -> int:
        return _limited(sum(1 for _ in self._lines()), self.source.limit)

    def __iter__(self) -> Iterator[Row | BadRow]:
        for index, (path, number, line) in enumerate(islice(self._lines(), self.source.limit)):
            origin = f"{path.name} line {number}"
            values = _json_object(line)
            if isinstance(values, str):
                yield BadRow(index=index, column="", reason=values, origin=origin)
            else:
                yield _parser(self, path).parse(values, index=index, origin=origin)

    def _lines(self) -> Iterator[tuple[Path, int, str]]:
        for path in self.files:
            # A byte that is no UTF-8 becomes a mark: it costs its row's text, not the whole file.
            with path.open(encoding="utf-8", errors="replace") as file:
                for number, line in enumerate(file, start=1):
                    if line.strip():
                        yield path, number, line


def open_local(source: LocalSource) -> FileReader:
    """The reader for a path, chosen by `source.format` or by what is there.

    Raises:
        ValueError: Nothing is there, it is no known format or more than one, or a configured column is missing from
            all of it.
    """
    path = Path(source.path)
    if not path.exists():
        raise ValueError(f"data source {source.path}: no such file or folder")
    kind = _find_format(path) if source.format == "auto" else source.format
    if kind == "geometry3k":
        return _open_geometry3k(path, source)
    files = _files_of(path, kind)
    reader = ParquetReader(files=files, source=source) if kind == "parquet" else JsonlReader(files=files, source=source)
    check_columns(reader.columns(), source.columns, place=source.path)
    return reader


def _open_geometry3k(path: Path, source: LocalSource) -> Geometry3kReader:
    reader = Geometry3kReader(folder=path, limit=source.limit)
    if not reader.files:
        raise ValueError(f"data source {path}: no item folder with a {ITEM_FILE} in it")
    return reader


def _find_format(path: Path) -> str:
    if path.is_file():
        kind = path.suffix.removeprefix(".")
        if kind not in ("parquet", "jsonl"):
            raise ValueError(
                f"data source {path}: a file must end in .parquet or .jsonl, or `format` must say what it is"
            )
        return kind
    patterns = {"parquet": "*.parquet", "jsonl": "*.jsonl", "geometry3k": f"*/{ITEM_FILE}"}
    found = [kind for kind, pattern in patterns.items() if next(path.glob(pattern), None)]
    if not found:
        raise ValueError(f"data source {path}: the folder has no .parquet or .jsonl file and no item folder")
    if len(found) > 1:
        raise ValueError(f"data source {path}: the folder holds {' and '.join(found)}; choose with `format`")
    return found[0]


def _files_of(path: Path, kind: str) -> list[Path]:
    if path.is_file():
        return [path]
    files = sorted(path.glob(f"*.{kind}"))
    if not files:
        raise ValueError(f"data source {path}: no .{kind} file in the folder")
    splits = {match["split"] for file in files if (match := _SPLIT_SHARD.fullmatch(file.name))}
    if len(splits) > 1:
        # Read as one, held-out rows would be trained on.
        raise ValueError(
            f"data source {path}: the folder holds the splits {', '.join(sorted(splits))}; "
            f"use a source {{type: hub, name: {path}@{min(splits)}}} to read one of them"
        )
    return files


def _parser(reader: ParquetReader | JsonlReader, file: Path) -> RowParser:
    media_dir = Path(reader.source.media_dir) if reader.source.media_dir else file.parent
    return RowParser(columns=reader.source.columns, data_source=reader.name, media_dir=media_dir)


def _parquet_metadata(path: Path) -> pq.FileMetaData:
    try:
        return pq.read_metadata(path)
    except pa.ArrowInvalid as error:
        raise ValueError(f"data source {path}: no readable Parquet file: {error}") from None


def _parquet_rows(path: Path) -> Iterator[dict[str, Any]]:
    with pq.ParquetFile(path) as file:
        batches = file.iter_batches(batch_size=_BATCH_ROWS)
        while (batch := _next_batch(batches, path)) is not None:
            yield from batch.to_pylist()


def _next_batch(batches: Iterator[pa.RecordBatch], path: Path) -> pa.RecordBatch | None:
    try:
        return next(batches, None)
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"data source {path}: the file is damaged: {error}") from None


def _json_object(line: str) -> dict[str, Any] | str:
    """The line's object, or why it has none."""
    try:
        values = json.loads(line)
    except ValueError as error:
        return f"the line is not JSON: {error}"
    return values if isinstance(values, dict) else f"the line holds {type(values).__name__}, not an object"


def _limited(count: int, limit: int | None) -> int:
    return count if limit is None else min(count, limit)
