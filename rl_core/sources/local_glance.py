"""What files of rows say of themselves at a glance: footers of Parquet files, the beginning of JSONL."""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Final

from rl_core.sources.columns import check_columns
from rl_core.sources.local import LocalSource
from rl_core.sources.local_files import check_rows, find_reader
from rl_core.sources.source import Glance
from rl_core.sources.tables import JsonlReader, TableReader

MOST_BYTES: Final = 1 << 26
"""Of JSONL, which are read to count its lines; of a longer file the rest is estimated."""

_ROWS_LOOKED_AT = 256
_CHUNK = 1 << 20


def local_glance(source: LocalSource) -> Glance:
    """A look whose work is bounded. Raises ValueError and OSError where there is nothing that can be read."""
    reader = find_reader(source)
    if isinstance(reader, TableReader):
        return _table_glance(reader, source)
    return Glance(rows=reader.row_count, names=frozenset([reader.name]))


def _table_glance(reader: TableReader, source: LocalSource) -> Glance:
    if isinstance(reader, JsonlReader):
        columns, is_whole = _first_columns(reader)
        rows, is_exact = _count_lines(reader)
    else:
        columns, is_whole = reader.columns(), True
        rows, is_exact = reader.count(), True
    if is_whole:
        check_rows(reader)
        check_columns(columns, source.columns, place=source.path)
    limited = rows if source.limit is None else min(rows, source.limit)
    return Glance(
        rows=limited,
        is_exact=is_exact or limited == source.limit,
        names=None if source.names_its_rows else frozenset([reader.name]),
        columns=frozenset(columns) - source.columns.meanings if is_whole else None,
    )


def _first_columns(reader: JsonlReader) -> tuple[set[str], bool]:
    """The columns of the first rows, and whether those are all rows."""
    rows = list(islice(reader.raw_rows(), _ROWS_LOOKED_AT + 1))
    names = {name for row in rows if isinstance(row.values, dict) for name in row.values}
    return names, len(rows) <= _ROWS_LOOKED_AT


def _count_lines(reader: JsonlReader) -> tuple[int, bool]:
    """Rows of the files, and whether all of them were read."""
    sizes = [path.stat().st_size for path in reader.files]
    if sum(sizes) <= MOST_BYTES:
        return reader.count(), True
    lines = read = 0
    for chunk in _chunks(reader.files, MOST_BYTES):
        lines += chunk.count(b"\n")
        read += len(chunk)
    return round(lines / read * sum(sizes)), False


def _chunks(files: list[Path], most_bytes: int) -> Iterator[bytes]:
    left = most_bytes
    for path in files:
        with path.open("rb") as file:
            while left > 0 and (chunk := file.read(min(_CHUNK, left))):
                left -= len(chunk)
                yield chunk
