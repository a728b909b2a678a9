"""The interface of a data source."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple, Protocol, Self

from rl_core.problem import Problem
from rl_core.section import Section
from rl_core.sources.rows import RowReader


class NamedPath(NamedTuple):
    """A path in a source's settings: its key, and the kind of thing that must be there."""

    key: str
    path: Path
    kind: Literal["file", "folder", "file or folder"]


class Repository(NamedTuple):
    """A dataset of the hub: the key that names it, `owner/name`, a branch, tag or commit (None: the main branch), and
    the chosen configuration, if any."""

    key: str
    name: str
    revision: str | None
    config: str | None = None


class SourceFiles(Protocol):
    """Maps the paths in a source's settings to places where they can be read."""

    def data(self, path: str) -> str:
        """Where a data file, a media file or a folder of them is."""

    def fixed_file(self, path: str) -> Path:
        """Where a file with user code is, which is fixed once the rows are prepared."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Glance:
    """What is known about a source without preparing it: the number of rows, usable or not; the data sources that they
    belong to, unless a column names these; their columns without question, answer and media; those of them that are
    named like images where no column with images, or another one of their series, is read; or why it cannot be
    read."""

    rows: int | None = None
    names: frozenset[str] | None = None
    columns: frozenset[str] | None = None
    unused_images: frozenset[str] = frozenset()
    problem: str | None = None


class DataSource(Section, ABC):
    """A source of rows as a config describes it. A kind of source is a subclass with its settings as fields, listed in
    `rl_core.sources.mixture`."""

    type: str

    @abstractmethod
    def open(self) -> RowReader:
        """A reader, of which each iteration yields the same rows. Raises ValueError where the source does not exist,
        cannot be read, or lacks a configured column altogether."""

    @abstractmethod
    def fingerprint(self) -> str:
        """Identity of the content: it changes where any row, image or video may have changed, and not when the source
        is moved. Raises ValueError as `open` does."""

    @abstractmethod
    def first_rows(self, count: int) -> Self:
        """The source of the first `count` rows."""

    @abstractmethod
    def glance(self) -> Glance:
        """What can be found out without running user code. Raises ValueError or OSError where the source cannot be
        read."""

    @property
    def known_rows(self) -> int | None:
        """Number of rows where the settings alone determine it."""
        return None

    @property
    def names_its_rows(self) -> bool:
        """Whether a column says which data source a row belongs to."""
        return False

    @property
    def parts(self) -> Mapping[str, "DataSource"]:
        """The sources of a mixture by name; empty for a source that reads rows itself."""
        return {}

    def trial_problems(self) -> Iterator[Problem]:
        """Problems that only the first rows show, for which a run looks before it starts."""
        yield from ()

    def paths(self) -> Iterator[NamedPath]:
        """The files and folders that the settings name and that must exist."""
        yield from ()

    def code_paths(self) -> Iterator[str]:
        """The files with user code, as the settings name them."""
        yield from ()

    def repository(self) -> Repository | None:
        """The dataset that is fetched from the hub, unless a folder on this machine has its name."""
        return None

    def located(self, files: SourceFiles) -> Self:
        """The source with its paths replaced by places that can be read. The name of its rows' data source stays."""
        return self
