"""Readers of tables, whose rows have named columns, and of folders, in which each file is a row."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

from typing_extensions import override

from rl_core.digests import file_digests
from rl_core.sources.columns import Columns, RowParser, check_columns
from rl_core.sources.media import is_image_name, series_of
from rl_core.sources.options import columns_named
from rl_core.sources.rows import BadRow, Row
from rl_core.sources.source import DataSource, Glance, NamedPath, SourceFiles


class TableSource(DataSource):
    """A source whose rows are those of a table."""

    if TYPE_CHECKING:  # fields of each subclass, with a sentence of its own
        columns: Columns
        media_dir: str | None
        limit: int | None

    @override
    def first_rows(self, count: int) -> Self:
        return self.model_copy(update={"limit": min(self.limit or count, count)})

    @property
    @override
    def names_its_rows(self) -> bool:
        return self.columns.data_source_key is not None

    @override
    def paths(self) -> Iterator[NamedPath]:
        if self.media_dir is not None:
            yield NamedPath("media_dir", Path(self.media_dir), "folder")

    @override
    def located(self, files: SourceFiles) -> Self:
        return self.model_copy(update={"media_dir": self.media_dir and files.data(self.media_dir)})


class RawRow(NamedTuple):
    """A row before its columns are given a meaning: its values by column, or the reason why it cannot be read; the
    folder from which relative paths start unless `media_dir` is set; where a person finds it; and the column at fault,
    if it is a single one."""

    values: dict[str, Any] | str
    folder: Path
    origin: str = ""
    column: str = ""


@dataclass(frozen=True, kw_only=True)
class TableReader(ABC):
    """Reads the rows of the table that the config names `place`."""

    place: str
    columns: Columns
    media_dir: str | None
    limit: int | None

    @property
    @abstractmethod
    def name(self) -> str:
        """The data source of rows that name none."""

    def class_names(self) -> Mapping[str, Sequence[str]]:
        """[column] -> the names of its classes, where the data say which names its numbers stand for."""
        return {}

    @abstractmethod
    def column_names(self) -> set[str]:
        """Names of all columns. Raises ValueError where a file cannot be read."""

    @abstractmethod
    def raw_rows(self) -> Iterator[RawRow]:
        """Every row. Raises ValueError where a file is damaged."""

    @abstractmethod
    def count(self) -> int:
        """Number of rows, without regard to the limit."""

    @property
    def row_count(self) -> int:
        """Number of rows."""
        return self.count() if self.limit is None else min(self.count(), self.limit)

    def check(self) -> None:
        """Raises ValueError where a configured column is missing."""
        check_columns(self.column_names(), self.columns, place=self.place)

    def __iter__(self) -> Iterator[Row | BadRow]:
        for index, raw in enumerate(islice(self.raw_rows(), self.limit)):
            if isinstance(raw.values, str):
                yield BadRow(index=index, column=raw.column, reason=raw.values, origin=raw.origin)
            else:
                yield self._parser(raw.folder).parse(raw.values, index=index, origin=raw.origin)

    def _parser(self, folder: Path) -> RowParser:
        media_dir = Path(self.media_dir) if self.media_dir else folder
        return RowParser(columns=self.columns, data_source=self.name, media_dir=media_dir, caches=self._caches)

    @property
    def _caches(self) -> tuple[Path, ...]:
        """Further folders that absolute paths may lead into."""
        return ()


@dataclass(frozen=True, kw_only=True)
class FileTable(TableReader):
    """Reads the rows of `files` of the same kind, one file after the other."""

    files: list[Path]

    @property
    @override
    def name(self) -> str:
        path = Path(self.place)
        if "*" not in path.name or path.exists():
            return path.stem
        return path.name.partition("*")[0].rstrip("-_.") or path.absolute().parent.name

    @property
    def kind(self) -> str:
        """The ending of the files' names."""
        return self.files[0].suffix.removeprefix(".")

    def check_rows(self) -> None:
        """Raises ValueError where there is no row, or none that can be read."""
        names, first = self.column_names(), next(iter(self.raw_rows()), None)
        if first is None:
            raise ValueError(f"data source {self.place}: it holds no row")
        if not names:
            why = f"{first.origin}: {first.values}"
            raise ValueError(f"data source {self.place}: none of its rows can be read; {why}")

    @override
    def check(self) -> None:
        self.check_rows()
        super().check()

    def content(self) -> dict[str, Any]:
        """What identifies the rows, without their media."""
        return {"files": file_digests(self.files)}

    def glance(self) -> Glance:
        """What the files show. Raises ValueError or OSError where nothing can be read."""
        self.check()
        return self._glance(columns=self.column_names())

    def _glance(self, *, columns: set[str] | None = None, some: Collection[str] = ()) -> Glance:
        """`columns` are all columns of the table, `some` those of a part of its rows where all are not known."""
        there = {*some} if columns is None else columns
        read = {series_of(name) for name in columns_named(self.columns.image_key) if name in there}
        named = {name for name in there - self.columns.meanings if is_image_name(name)}
        return Glance(
            rows=self.row_count,
            names=None if self.columns.data_source_key else frozenset([self.name]),
            columns=None if columns is None else self._further(columns),
            unused_images=frozenset(name for name in named if not read or series_of(name) in read),
        )

    def _further(self, columns: set[str]) -> frozenset[str]:
        further = frozenset(columns) - self.columns.meanings
        return further | {"options"} if self.columns.options_key else further


class WholeTable(FileTable):
    """Reads files that must be read as a whole, once."""

    @abstractmethod
    def _rows_of(self, path: Path) -> Iterator[RawRow]:
        """The rows of one file. Raises ValueError where it is damaged."""

    @cached_property
    def _rows(self) -> list[RawRow]:
        return [row for path in self.files for row in self._rows_of(path)]

    @override
    def column_names(self) -> set[str]:
        return {name for row in self._rows if isinstance(row.values, dict) for name in row.values}

    @override
    def count(self) -> int:
        return len(self._rows)

    @override
    def raw_rows(self) -> Iterator[RawRow]:
        return iter(self._rows)


@dataclass(frozen=True, kw_only=True)
class FolderReader(TableReader):
    """Reads a folder in which each file is a row, of columns that the kind of folder has."""

    columns: Columns = field(default_factory=Columns)
    kind: ClassVar[str]
    """The `format` of a local source."""

    @cached_property
    @abstractmethod
    def files(self) -> list[Path]:
        """The file of each row."""

    @property
    @override
    def name(self) -> str:
        return self.folder.absolute().name

    @property
    def folder(self) -> Path:
        """The folder itself."""
        return Path(self.place)

    @override
    def column_names(self) -> set[str]:
        return set(self.columns.meanings)

    @override
    def count(self) -> int:
        return len(self.files)

    def content(self) -> dict[str, Any]:
        """What identifies the rows, without their media."""
        return {"files": file_digests(self.files)}

    def glance(self) -> Glance:
        """The number of rows and their data source."""
        return Glance(rows=self.row_count, names=frozenset([self.name]))
