"""Rows of Arrow tables and of Parquet files."""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from typing_extensions import override

from rl_core.sources.file_kinds import foreign_kind, read_start
from rl_core.sources.json_rows import parse_json
from rl_core.sources.tables import FileTable, RawRow

_BATCH_ROWS = 64

# What pyarrow raises for values outside the range of Python's types, and for structs with two fields of the same name.
_CONVERSION_ERRORS = (ValueError, OverflowError, LookupError, TypeError, pa.ArrowException)

_PARQUET = b"PAR1"  # the beginning of a whole file, and of a damaged one

_DATASETS = b"huggingface"
"""The key under which `datasets` writes what its columns are, as JSON."""

_JSON_MARK = {b"sightline": b"json"}


def arrow_rows(table: Any) -> Iterator[tuple[dict[str, Any] | str, str]]:
    """The rows of an Arrow table or batch, each with an empty text; or the reason why one cannot be read, with the
    column at fault: Python has no form for a value, such as a text that is not UTF-8, which Parquet does not check, or
    a time in the year 292277026596."""
    try:
        rows = [(values, "") for values in table.to_pylist()]
    except _CONVERSION_ERRORS:  # of one row or several
        rows = [_arrow_row(table.slice(number, 1)) for number in range(table.num_rows)]
    yield from rows


def _arrow_row(table: Any) -> tuple[dict[str, Any] | str, str]:
    values = {}
    for name in table.schema.names:
        try:
            (values[name],) = table.column(name).to_pylist()
        except UnicodeDecodeError as error:
            return f"a text is no UTF-8: {error}", name
        except _CONVERSION_ERRORS as error:
            return f"a value of type {table.column(name).type} cannot be read: {error}", name
    return values, ""


def json_column(name: str) -> Any:
    """A Parquet column that stores values of any kind as JSON texts; ParquetReader reads equal values back. A null text
    means that the row lacks the column. Parquet's own types could distinguish neither a missing column from a null, nor
    3 in one row from "3" in another."""
    return pa.field(name, pa.string(), metadata=_JSON_MARK)


class ParquetReader(FileTable):
    """Reads Parquet; images may be structs of bytes and path, as `datasets` writes them."""

    @cached_property
    def _metadata(self) -> list[Any]:
        return [_read_metadata(path) for path in self.files]

    @override
    def column_names(self) -> set[str]:
        schemas = [metadata.schema.to_arrow_schema().names for metadata in self._metadata]
        for path, names in zip(self.files, schemas, strict=True):
            if twice := [name for name, count in Counter(names).items() if count > 1]:
                raise ValueError(f"data source {path}: it has several columns {' and '.join(map(repr, twice))}")
        return {name for names in schemas for name in names}

    @override
    def class_names(self) -> dict[str, list[str]]:
        described = (self._metadata[0].schema.to_arrow_schema().metadata or {}).get(_DATASETS)
        if described is None:
            return {}
        features = json.loads(described).get("info", {}).get("features", {})
        return {
            name: one["names"]
            for name, one in features.items()
            if isinstance(one, dict) and isinstance(one.get("names"), list)
        }

    @override
    def count(self) -> int:
        return sum(metadata.num_rows for metadata in self._metadata)

    @override
    def raw_rows(self) -> Iterator[RawRow]:
        for path in self.files:
            with pq.ParquetFile(path) as file:
                batches = file.iter_batches(batch_size=_BATCH_ROWS)
                number = 0
                packed = [field.name for field in file.schema_arrow if field.metadata == _JSON_MARK]
                while (batch := _next_batch(batches, path)) is not None:
                    for values, column in arrow_rows(batch):
                        row = RawRow(values, path.parent, f"{path.name} row {number}", column)
                        yield _unpacked(row, values, packed) if isinstance(values, dict) else row
                        number += 1


def _unpacked(row: RawRow, values: dict[str, Any], packed: Sequence[str]) -> RawRow:
    texts = {name: text for name in packed if (text := values.pop(name)) is not None}
    for name, text in texts.items():
        try:
            values[name] = parse_json(text)
        except ValueError as error:
            return row._replace(values=f"the column's text {error}", column=name)
    return row


def _read_metadata(path: Path) -> Any:
    try:
        metadata = pq.read_metadata(path)
        _ = metadata.schema.to_arrow_schema().names  # some damage shows only here
        return metadata
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        start = read_start(path)
        kind = None if start.startswith(_PARQUET) else foreign_kind(start)
        why = f", but {kind}" if kind else f": {error}"
        raise ValueError(f"data source {path}: no readable Parquet file{why}") from None


def _next_batch(batches: Iterator[Any], path: Path) -> Any:
    try:
        return next(batches, None)
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"data source {path}: the file is damaged: {error}") from None
