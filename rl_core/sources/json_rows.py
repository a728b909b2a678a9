"""Rows of JSON files: an object on each line, one array of objects, or one object of objects by their ids."""

import json
import re
from collections import Counter
from collections.abc import Iterator
from io import StringIO
from itertools import islice
from pathlib import Path
from typing import Any, Final

from typing_extensions import override

from rl_core.sources.file_kinds import foreign_kind, read_start, read_text
from rl_core.sources.source import Glance
from rl_core.sources.tables import FileTable, RawRow, WholeTable

_ROWS_LOOKED_AT = 256
_SPACE: Final = re.compile(r"[ \t\n\r]*")
_OBJECT_IN_OBJECT: Final = re.compile(rb'\s*\{\s*"[^"]*"\s*:\s*\{')


def parse_json(text: str) -> Any:
    """The value of a JSON text. Raises ValueError where it is no JSON, nested too deeply, or has a key twice; the
    message is the end of a sentence that begins with "the line" or the like."""
    try:
        return json.loads(text, object_pairs_hook=_unique)
    except json.JSONDecodeError as error:
        raise ValueError(f"is not JSON: {error}") from None
    except RecursionError:
        raise ValueError("has lists and objects that are nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"cannot be read: {error}") from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        ((name, _),) = Counter(name for name, _ in pairs).most_common(1)
        raise ValueError(f"an object has the key {name!r} twice")
    return values


class JsonlReader(FileTable):
    """Reads one JSON object from each line; blank lines are skipped."""

    @override
    def column_names(self) -> set[str]:
        return {name for raw in self.raw_rows() if isinstance(raw.values, dict) for name in raw.values}

    @override
    def count(self) -> int:
        return sum(1 for _ in self._lines())

    @override
    def raw_rows(self) -> Iterator[RawRow]:
        for path, number, line in self._lines():
            yield RawRow(_json_object(line, "line"), path.parent, f"{path.name} line {number}")

    @override
    def glance(self) -> Glance:
        if self.count() <= _ROWS_LOOKED_AT:
            return super().glance()
        first = (raw.values for raw in islice(self.raw_rows(), _ROWS_LOOKED_AT))  # the others are only counted
        return self._glance(some={name for values in first if isinstance(values, dict) for name in values})

    def _lines(self) -> Iterator[tuple[Path, int, str]]:
        for path in self.files:
            # A byte that is not UTF-8 becomes half a surrogate pair, by which the unreadable line is recognised.
            with path.open(encoding="utf-8-sig", errors="surrogateescape") as file:
                for number, line in enumerate(file, start=1):
                    if line.strip():
                        yield path, number, line


class JsonReader(WholeTable):
    """Reads one array of objects from each file, or one object of objects."""

    def _rows_of(self, path: Path) -> Iterator[RawRow]:
        text = read_text(path, "JSON")
        if (rows := _rows_by_id(text)) is not None:
            for name, values in rows.items():
                yield RawRow(values, path.parent, f"{path.name} {name!r}")
            return
        for number, row in enumerate(_elements(text, path)):
            yield RawRow(_json_object(row, "row"), path.parent, f"{path.name} row {number}")


def is_one_json_value(path: Path) -> bool:
    """Whether a JSON file is one array, or one object of objects, and not one object on each line."""
    start = read_start(path).removeprefix(b"\xef\xbb\xbf")
    if _OBJECT_IN_OBJECT.match(start):
        return _rows_by_id(read_text(path, "JSON")) is not None
    return start.lstrip().startswith(b"[")


def _rows_by_id(text: str) -> dict[str, dict[str, Any]] | None:
    """Two or more objects inside of one, as in ScienceQA's problems.json; None where the text is anything else."""
    try:
        text.encode()  # a byte that is not UTF-8 is an error too
        rows = parse_json(text)
    except ValueError:
        return None
    is_table = isinstance(rows, dict) and len(rows) > 1 and all(isinstance(values, dict) for values in rows.values())
    return rows if is_table else None


def check_json_lines(path: Path) -> None:
    """Raises ValueError for a file that cannot be JSONL, and says what it is."""
    start = read_start(path)
    kind = foreign_kind(start) or _other_json(start)
    if kind is not None:
        raise ValueError(f"{path} is no JSONL but {kind}")


def _other_json(start: bytes) -> str | None:
    """The form of JSON that does not have one object on each line; None for JSONL."""
    text = start.decode("utf-8-sig", errors="replace")
    lines = [line.strip() for line in StringIO(text, newline=None) if line.strip()]  # as a text file has them
    if not lines:
        return None
    first = lines[0]
    if first.startswith("[") and first[1:].lstrip()[:1] in ("", "{"):
        return "one JSON array: let its name end in .json"
    begins_object = first.startswith("{") and not first.endswith("}")
    if begins_object and len(lines) > 1 and not lines[1].startswith("{"):
        return "JSON whose objects go over several lines: write each on a line of its own"
    return None


def _json_object(text: str, what: str) -> dict[str, Any] | str:
    """The JSON object that a text is, or the reason why it is none, which calls the text `what`."""
    try:
        text.encode()
        values = parse_json(text)
    except UnicodeEncodeError as error:
        return f"the {what} is not UTF-8 (character {error.start + 1}); save the file as UTF-8"
    except ValueError as error:
        return f"the {what} {error}"
    return values if isinstance(values, dict) else f"the {what} holds {type(values).__name__}, not an object"


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
    match = _SPACE.match(text, position)
    return match.end() if match else position
