"""Reads the rows of JSON arrays and of CSV: files that must be read as a whole."""

import csv
import json
import math
import re
import sys
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from io import StringIO
from pathlib import Path
from typing import Any, Final

from rl_core.sources.file_kinds import foreign_kind, read_start
from rl_core.sources.json_text import parse_json
from rl_core.sources.tables import RawRow, TableReader

_JSON_SPACE: Final = re.compile(r"[ \t\n\r]*")
_WHOLE: Final = re.compile(r"[+-]?\d+")
_DIGITS_OF_64_BITS: Final = 18
_REAL: Final = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_TRUTHS: Final = {"true": True, "false": False}


@dataclass(frozen=True, kw_only=True)
class WholeTableReader(TableReader):
    """Reads files that must be read as a whole, once."""

    @cached_property
    def _rows(self) -> list[RawRow]:
        return [row for path in self.files for row in self._rows_of(path)]

    @abstractmethod
    def _rows_of(self, path: Path) -> Iterator[RawRow]:
        """The rows of one file. Raises ValueError, which names the file, where it is damaged."""

    def columns(self) -> set[str]:
        """Names of the columns that any row has."""
        return {name for row in self._rows if isinstance(row.values, dict) for name in row.values}

    def count(self) -> int:
        """Number of rows."""
        return len(self._rows)

    def raw_rows(self) -> Iterator[RawRow]:
        """Every row."""
        return iter(self._rows)


class JsonReader(WholeTableReader):
    """Reads one array of objects from each file."""

    def _rows_of(self, path: Path) -> Iterator[RawRow]:
        for number, text in enumerate(_elements(_text_of(path, "JSON"), path)):
            origin = f"{path.name} row {number}"
            try:
                text.encode()
                values = parse_json(text)
            except UnicodeEncodeError:
                yield RawRow("the row is not UTF-8; save the file as UTF-8", path, origin)
                continue
            except ValueError as error:
                yield RawRow(f"the row {error}", path, origin)
                continue
            kind = type(values).__name__
            yield RawRow(values if isinstance(values, dict) else f"the row is {kind}, not an object", path, origin)


class CsvReader(WholeTableReader):
    """Reads values separated by commas below a line of names. If all values of a column are numbers, or true or false,
    they are read as such; an empty value is null."""

    def _rows_of(self, path: Path) -> Iterator[RawRow]:
        lines = _csv_lines(path)
        _, names = next(lines, (0, []))
        if twice := [name for name, count in Counter(names).items() if count > 1]:
            raise ValueError(f"data source {path}: it has several columns {' and '.join(map(repr, twice))}")
        rows = [(line, cells, _why_unreadable(cells, len(names))) for line, cells in lines]
        good = [cells for _, cells, reason in rows if reason is None]
        typed = zip(*(_typed(column) for column in zip(*good, strict=True)), strict=True)
        for line, _, reason in rows:
            origin = f"{path.name} line {line}"
            yield RawRow(dict(zip(names, next(typed), strict=True)) if reason is None else reason, path, origin)


def is_json_array(path: Path) -> bool:
    """Whether a JSON file is one array, and not one object on each line. Raises OSError where it cannot be read."""
    return read_start(path).removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"[")


def _text_of(path: Path, kind: str) -> str:
    """The file's text; a byte that is not UTF-8 becomes half a surrogate pair, by which its row is recognised. Raises
    ValueError where the file is of another kind."""
    if other := foreign_kind(read_start(path)):
        raise ValueError(f"data source {path}: it is no {kind} but {other}")
    return path.read_bytes().decode("utf-8-sig", errors="surrogateescape")


def _elements(text: str, path: Path) -> Iterator[str]:
    """The text of each element of an array."""
    decoder = json.JSONDecoder()
    position = _after_space(text, text.index("[") + 1)
    while not text.startswith("]", position):
        try:
            _, end = decoder.raw_decode(text, position)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"data source {path}: the array is damaged: {error}") from None
        yield text[position:end]
        position = _after_space(text, end)
        if text.startswith(",", position):
            position = _after_space(text, position + 1)
        elif not text.startswith("]", position):
            raise ValueError(f"data source {path}: the array is damaged: no comma after character {end}")


def _after_space(text: str, position: int) -> int:
    match = _JSON_SPACE.match(text, position)
    return match.end() if match else position


def _csv_lines(path: Path) -> Iterator[tuple[int, list[str]]]:
    """The number of its last line and the values of every row that is not empty, beginning with the names of the
    columns. Raises ValueError where the file is no CSV."""
    csv.field_size_limit(sys.maxsize)  # for the whole process; the default refuses long texts
    reader = csv.reader(StringIO(_text_of(path, "CSV"), newline=""), strict=True)
    try:
        yield from ((reader.line_num, cells) for cells in reader if cells)
    except csv.Error as error:
        raise ValueError(f"data source {path}: line {reader.line_num} is no CSV: {error}") from None


def _why_unreadable(cells: Sequence[str], width: int) -> str | None:
    if len(cells) != width:
        return f"the line has {len(cells)} values, and there are {width} columns"
    try:
        "".join(cells).encode()
    except UnicodeEncodeError:
        return "the line is not UTF-8; save the file as UTF-8"
    return None


def _typed(column: Sequence[str]) -> list[Any]:
    """The values of a column, all converted to the same type; empty values become None."""
    kind = _kind([text for text in column if text])
    return [kind(text) if text else None for text in column]


def _kind(texts: Sequence[str]) -> Callable[[str], Any]:
    """The conversion that all texts of a column allow. Numbers that would lose digits stay text."""
    if not texts:
        return str
    if all(map(_WHOLE.fullmatch, texts)):
        return int if max(map(len, texts)) <= _DIGITS_OF_64_BITS else str
    if all(map(_REAL.fullmatch, texts)):
        return float if all(math.isfinite(float(text)) for text in texts) else str
    return _truth if all(text.lower() in _TRUTHS for text in texts) else str


def _truth(text: str) -> bool:
    return _TRUTHS[text.lower()]
