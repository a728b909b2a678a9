"""Rows of Parquet and JSONL files."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO

import pyarrow as pa
import pyarrow.parquet as pq

from rl_core.sources.columns import RowParser
from rl_core.sources.file_kinds import foreign_kind, read_start
from rl_core.sources.json_text import parse_json
from rl_core.sources.rows import BadRow, Row

if TYPE_CHECKING:
    from rl_core.sources.local import LocalSource

_BATCH_ROWS = 64

# What pyarrow raises for values outside the range of Python's types, and for structs with two fields of the same name.
_CONVERSION_ERRORS = (ValueError, OverflowError, LookupError, TypeError, pa.ArrowException)

_LONGEST_LINE = 1 << 28

_PARQUET = b"PAR1"  # the beginning of a whole file, and of a damaged one

_JSON_MARK = {b"sightline": b"json"}


class RawRow(NamedTuple):
    """A row before its columns are given a meaning.

    Attributes:
        values: Values by column, or the reason why the row cannot be read.
        file: The file that it is in.
        origin: Where a person finds the row.
        column: The column at fault, if a single one makes the row unreadable.
    """

    values: dict[str, Any] | str
    file: Path
    origin: str
    column: str = ""


class Unreadable(NamedTuple):
    """The column at fault in a row that cannot be read, and the reason."""

    column: str
    reason: str


def arrow_rows(table: Any) -> Iterator[dict[str, Any] | Unreadable]:
    """The rows of an Arrow table or batch. A row is unreadable if Python has no form for one of its values, such as a
    text that is not UTF-8, which Parquet does not check, or a time in the year 292277026596."""
    try:
        rows = table.to_pylist()
    except _CONVERSION_ERRORS:  # of one row or several
        rows = [_arrow_row(table.slice(number, 1)) for number in range(table.num_rows)]
    yield from rows


def _arrow_row(table: Any) -> dict[str, Any] | Unreadable:
    values = {}
    for name in table.schema.names:
        try:
            (values[name],) = table.column(name).to_pylist()
        except UnicodeDecodeError as error:
            return Unreadable(name, f"a text is no UTF-8: {error}")
        except _CONVERSION_ERRORS as error:
            return Unreadable(name, f"a value of type {table.column(name).type} cannot be read: {error}")
    return values


def json_column(name: str) -> Any:
    """A Parquet column that stores values of any kind as JSON texts; ParquetReader reads equal values back. A null text
    means that the row lacks the column. Parquet's own types could distinguish neither a missing column from a null, nor
    3 in one row from "3" in another."""
    return pa.field(name, pa.string(), metadata=_JSON_MARK)


@dataclass(frozen=True, kw_only=True)
class TableReader(ABC):
    """Reads the rows of files of the same kind, one file after the other."""

    files: list[Path]
    source: "LocalSource"

    @property
    def name(self) -> str:
        """The last part of the path without its ending; of a pattern, the part before its first `*`."""
        path = Path(self.source.path)
        if "*" not in path.name or path.exists():
            return path.stem
        return path.name.partition("*")[0].rstrip("-_.") or path.absolute().parent.name

    @abstractmethod
    def columns(self) -> set[str]:
        """Names of all columns of all files. Raises ValueError, which names the file, where one cannot be read."""

    @abstractmethod
    def raw_rows(self) -> Iterator[RawRow]:
        """Every row. Raises ValueError, which names the file, where one is damaged."""

    @abstractmethod
    def count(self) -> int:
        """Number of rows in all files."""

    @property
    def row_count(self) -> int:
        """Number of rows."""
        return self.count() if self.source.limit is None else min(self.count(), self.source.limit)

    def __iter__(self) -> Iterator[Row | BadRow]:
        for index, raw in enumerate(islice(self.raw_rows(), self.source.limit)):
            if isinstance(raw.values, str):
                yield BadRow(index=index, column=raw.column, reason=raw.values, origin=raw.origin)
            else:
                yield self._parser(raw.file).parse(raw.values, index=index, origin=raw.origin)

    def _parser(self, file: Path) -> RowParser:
        media_dir = Path(self.source.media_dir) if self.source.media_dir else file.parent
        return RowParser(columns=self.source.columns, data_source=self.name, media_dir=media_dir)


class ParquetReader(TableReader):
    """Reads Parquet; images may be structs of bytes and path, as `datasets` writes them."""

    @cached_property
    def _metadata(self) -> list[Any]:
        return [_parquet_metadata(path) for path in self.files]

    def columns(self) -> set[str]:
        """Names from the files' schemas. Raises ValueError where a file has two columns of the same name."""
        schemas = [metadata.schema.to_arrow_schema().names for metadata in self._metadata]
        for path, names in zip(self.files, schemas, strict=True):
            if twice := [name for name, count in Counter(names).items() if count > 1]:
                raise ValueError(f"data source {path}: it has several columns {' and '.join(map(repr, twice))}")
        return {name for names in schemas for name in names}

    def count(self) -> int:
        """Row counts from the files' footers."""
        return sum(metadata.num_rows for metadata in self._metadata)

    def raw_rows(self) -> Iterator[RawRow]:
        """Every row; only a few are in memory at a time."""
        for path in self.files:
            with pq.ParquetFile(path) as file:
                batches = file.iter_batches(batch_size=_BATCH_ROWS)
                number = 0
                packed = [field.name for field in file.schema_arrow if field.metadata == _JSON_MARK]
                while (batch := _next_batch(batches, path)) is not None:
                    for values in arrow_rows(batch):
                        yield _raw_row(values, packed, file=path, origin=f"{path.name} row {number}")
                        number += 1


class JsonlReader(TableReader):
    """Reads one JSON object from each line; blank lines are skipped."""

    def columns(self) -> set[str]:
        """Names of the columns that any row has. Reads every line."""
        return {name for raw in self.raw_rows() if isinstance(raw.values, dict) for name in raw.values}

    def count(self) -> int:
        """Number of lines that are not blank."""
        return sum(1 for _ in self._lines())

    def raw_rows(self) -> Iterator[RawRow]:
        """Every row; a line that is no JSON object is a row that cannot be read."""
        for path, number, line in self._lines():
            yield RawRow(_json_object(line), path, f"{path.name} line {number}")

    def _lines(self) -> Iterator[tuple[Path, int, str]]:
        for path in self.files:
            # A byte that is not UTF-8 becomes half a surrogate pair, by which the unreadable line is recognised.
            with path.open(encoding="utf-8-sig", errors="surrogateescape") as file:
                for number, line in enumerate(_bounded_lines(file), start=1):
                    if line.strip():
                        yield path, number, line


def _raw_row(values: dict[str, Any] | Unreadable, packed: Sequence[str], *, file: Path, origin: str) -> RawRow:
    """A row with the texts of its JSON columns, which `packed` names, replaced by their values."""
    if isinstance(values, Unreadable):
        return RawRow(values.reason, file, origin, column=values.column)
    texts = {name: text for name in packed if (text := values.pop(name)) is not None}
    for name, text in texts.items():
        try:
            values[name] = parse_json(text)
        except ValueError as error:
            return RawRow(f"the column's text {error}", file, origin, column=name)
    return RawRow(values, file, origin)


def _parquet_metadata(path: Path) -> Any:
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


def _bounded_lines(file: TextIO) -> Iterator[str]:
    """Every line; of a line that is too long, only the beginning."""
    while line := file.readline(_LONGEST_LINE):
        yield line
        while len(line) == _LONGEST_LINE and not line.endswith("\n"):
            line = file.readline(_LONGEST_LINE)


def _json_object(line: str) -> dict[str, Any] | str:
    """The line's JSON object, or the reason why there is none."""
    if len(line) == _LONGEST_LINE:
        return f"the line has {_LONGEST_LINE} characters or more"
    try:
        line.encode()
        values = parse_json(line)
    except UnicodeEncodeError as error:
        return f"the line is not UTF-8 (character {error.start + 1}); save the file as UTF-8"
    except ValueError as error:
        return f"the line {error}"
    return values if isinstance(values, dict) else f"the line holds {type(values).__name__}, not an object"
