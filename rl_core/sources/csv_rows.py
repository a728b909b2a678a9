"""Rows of CSV and TSV files."""

import csv
import math
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from io import StringIO
from pathlib import Path
from typing import Any, ClassVar, Final

from rl_core.sources.file_kinds import read_text
from rl_core.sources.tables import RawRow, WholeTable

_WHOLE: Final = re.compile(r"[+-]?\d+")
_PADDED: Final = re.compile(r"[+-]?0\d")
_DIGITS_OF_64_BITS: Final = 18
_REAL: Final = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_TRUTHS: Final = {"true": True, "false": False}


class CsvReader(WholeTable):
    """Reads values separated by commas below a line of names. If all values of a column are numbers, or true or false,
    they are read as such; an empty value is null. Answers with zeros at the end (3.50) stay as they are written."""

    separator: ClassVar[str] = ","

    def _rows_of(self, path: Path) -> Iterator[RawRow]:
        lines = _lines(path, self.separator)
        _, names = next(lines, (0, []))
        if twice := [name for name, count in Counter(names).items() if count > 1]:
            raise ValueError(f"data source {path}: it has several columns {' and '.join(map(repr, twice))}")
        rows = [(line, cells, _why_unreadable(cells, len(names))) for line, cells in lines]
        good = [cells for _, cells, reason in rows if reason is None]
        typed = zip(*self._typed_columns(names, good), strict=True)
        for line, _, reason in rows:
            origin = f"{path.name} line {line}"
            yield RawRow(dict(zip(names, next(typed), strict=True)) if reason is None else reason, path.parent, origin)

    def _typed_columns(self, names: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[list[Any]]:
        for name, column in zip(names, zip(*rows, strict=True), strict=bool(rows)):
            yield _typed(column, keeps_zeros=name == self.columns.answer_key)


class TsvReader(CsvReader):
    """The same with tabs in the place of commas."""

    separator = "\t"


def _lines(path: Path, separator: str) -> Iterator[tuple[int, list[str]]]:
    """The last line's number and the values of every row that is not empty, beginning with the names of the columns."""
    csv.field_size_limit(sys.maxsize)  # for the whole process; the default refuses long texts
    reader = csv.reader(StringIO(read_text(path, "CSV"), newline=""), strict=True, delimiter=separator)
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


def _typed(column: Sequence[str], *, keeps_zeros: bool) -> list[Any]:
    kind = _kind([text for text in column if text])
    if kind is float and keeps_zeros and any("." in text and str(float(text)) != text for text in column):
        return [text or None for text in column]
    return [kind(text) if text else None for text in column]


def _kind(texts: Sequence[str]) -> Callable[[str], Any]:
    """The conversion that all texts of a column allow. Numbers that would lose digits stay text, as the names of files
    do that begin with zeros."""
    if not texts or any(map(_PADDED.match, texts)):
        return str
    if all(map(_WHOLE.fullmatch, texts)):
        return int if max(map(len, texts)) <= _DIGITS_OF_64_BITS else str
    if all(map(_REAL.fullmatch, texts)):
        return float if all(math.isfinite(float(text)) for text in texts) else str
    return (lambda text: _TRUTHS[text.lower()]) if all(text.lower() in _TRUTHS for text in texts) else str
