"""The `custom` source: rows that a user function yields."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import Any, Final, Literal, Self

import numpy as np
from pydantic import Field, field_validator
from typing_extensions import override

from rl_core.digests import digest_of
from rl_core.problem import Problem
from rl_core.section import Kwargs, refuse_secrets
from rl_core.sources.columns import Columns, RowParser
from rl_core.sources.rows import BadRow, Row
from rl_core.sources.source import Glance, SourceFiles
from rl_core.sources.tables import TableSource
from rl_core.user_code.function import UserFunction, file_named, find_function, function_problems

FINGERPRINT: Final = "fingerprint"
"""Optional function of the same file, `fingerprint(**kwargs) -> str`: what else the rows depend on."""

_ROWS_TRIED = 8
_END = object()


class CustomSource(TableSource):
    """Rows that a function of your own yields."""

    type: Literal["custom"]
    function: str
    """`path/to/file.py:name`, or `package.module:name` of an installed package. Called with `kwargs`, it yields rows,
    each a mapping of columns; equal calls must yield equal rows."""
    kwargs: Kwargs = {}
    """Keyword arguments of the function."""
    columns: Columns = Columns()
    """Names of the columns."""
    media_dir: str | None = None
    """Folder that relative paths start from; null takes the folder of the function's file."""
    limit: int | None = Field(default=None, ge=1)
    """Take only the first rows; a function that never ends needs a limit."""

    _secrets_are_refused = field_validator("kwargs")(refuse_secrets)

    @override
    def open(self) -> "CustomReader":
        return CustomReader(source=self, function=find_function(self.function))

    @override
    def fingerprint(self) -> str:
        function = find_function(self.function)
        try:
            code = function.code
        except OSError as error:
            raise ValueError(f"data source {self.function}: its code cannot be read: {error.strerror}") from None
        content = {
            "function": function.name,
            "code": code,
            "settings": self.model_dump(mode="json", include={"kwargs", "columns", "limit"}),
            "external": self._own_fingerprint(function),
        }
        return digest_of(content)

    @override
    def glance(self) -> Glance:
        return Glance(names=None if self.names_its_rows else frozenset([self.function_name]))

    @property
    def function_name(self) -> str:
        """The function's own name, which is also the name of its rows' data source."""
        return self.function.rpartition(":")[2]

    @override
    def problems(self) -> Iterator[Problem]:
        yield from function_problems(self.function, self.kwargs, takes_input=False)

    @override
    def trial_problems(self) -> Iterator[Problem]:
        if any(self.problems()):
            return  # which say it already
        first = self.first_rows(_ROWS_TRIED)
        fix = "correct the function, or its arguments in kwargs"
        try:
            what = _row_problems(list(first.open()), list(first.open()))
        except ValueError as error:
            what = [str(error)]
        yield from (Problem("function", text, fix) for text in what)

    @override
    def code_paths(self) -> Iterator[str]:
        path = file_named(self.function)
        if path is not None:
            yield path

    @override
    def located(self, files: SourceFiles) -> Self:
        path = file_named(self.function)
        if path is None:
            return super().located(files)
        place, original_folder = files.fixed_file(path), str(Path(files.data(path)).parent)
        media_dir = self.media_dir and files.data(self.media_dir)
        if media_dir is None and place.parent != Path(original_folder):  # a copy of the code has no media in its folder
            media_dir = original_folder
        return self.model_copy(update={"function": f"{place}:{self.function_name}", "media_dir": media_dir})

    def _own_fingerprint(self, function: UserFunction) -> str | None:
        fingerprint = function.load_other(FINGERPRINT) if function.text.may_define(FINGERPRINT) else None
        if fingerprint is None:
            return None
        try:
            result = fingerprint(**self.kwargs)
        except (Exception, SystemExit) as error:
            reason = function.failure_text(error)
            raise ValueError(f"data source {self.function}: `{FINGERPRINT}`: {reason}") from error
        if not isinstance(result, str):
            raise ValueError(f"data source {self.function}: `{FINGERPRINT}` returned {type(result).__name__}, not text")
        return result


@dataclass(frozen=True, kw_only=True)
class CustomReader:
    """Reads the rows that a user function yields. Raises ValueError, with the row and the line, where it fails."""

    source: CustomSource
    function: UserFunction

    def __post_init__(self) -> None:
        _ = self._loaded

    @property
    def name(self) -> str:
        """The function's name."""
        return self.source.function_name

    @property
    def row_count(self) -> int | None:
        """The `len` of what the function returns, if that has one."""
        rows = self._called
        if not isinstance(rows, Sized):
            return None
        with self._named("`len`"):
            number = len(rows)
        return number if self.source.limit is None else min(number, self.source.limit)

    def __iter__(self) -> Iterator[Row | BadRow]:
        rows = self._iterator()
        for index in count() if self.source.limit is None else range(self.source.limit):
            with self._named(f"row {index}"):
                values = next(rows, _END)
            if values is _END:
                return
            yield self._row(index, values)

    @cached_property
    def _loaded(self) -> Callable[..., Any]:
        return self.function.load()

    @cached_property
    def _called(self) -> object:
        with self._named("the call"):
            return self._loaded(**self.source.kwargs)

    def _iterator(self) -> Iterator[object]:
        # From the first row each time: a generator is made again, a list iterated over again.
        rows = self._called
        with self._named("the call"):
            if isinstance(rows, Iterator):
                rows = self._loaded(**self.source.kwargs)
            if not isinstance(rows, Iterable):
                raise TypeError(f"it returned {type(rows).__name__}, which yields no rows")
            return iter(rows)

    def _row(self, index: int, values: object) -> Row | BadRow:
        try:
            if not isinstance(values, Mapping) or not all(isinstance(name, str) for name in values):
                raise TypeError(f"it is {type(values).__name__}, not a mapping of columns by their names")
            plain = {name: value.item() if isinstance(value, np.generic) else value for name, value in values.items()}
            return self._parser.parse(plain, index=index)
        except Exception as error:  # noqa: BLE001 - the mapping and its values may be objects of any kind
            return BadRow(index=index, column="", reason=self.function.failure_text(error))

    @cached_property
    def _parser(self) -> RowParser:
        media_dir = Path(self.source.media_dir) if self.source.media_dir else self.function.file.parent
        return RowParser(columns=self.source.columns, data_source=self.name, media_dir=media_dir)

    @contextmanager
    def _named(self, what: str) -> Iterator[None]:
        try:
            yield
        except (Exception, SystemExit) as error:
            reason = self.function.failure_text(error)
            raise ValueError(f"data source {self.source.function}: {what}: {reason}") from error


def _row_problems(first: Sequence[Row | BadRow], again: Sequence[Row | BadRow]) -> list[str]:
    """Problems that the first rows show, which were read twice."""
    if not first:
        return ["it yields no row"]
    if all(isinstance(row, BadRow) for row in first):
        return [f"none of its first {len(first)} row(s) can be used; {first[0]}"]
    if _usable(first) != _usable(again):
        return ["it yields other rows the second time; draw them from a seed that kwargs give"]
    return []


def _usable(rows: Sequence[Row | BadRow]) -> list[Row | int]:
    # A row that cannot be used is its number, because its reason may name an object's address.
    return [row if isinstance(row, Row) else row.index for row in rows]
