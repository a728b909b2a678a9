"""What the house asks of a source of rows."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple, Protocol, Self

from rl_core.section import Section
from rl_core.sources.rows import RowReader


class SettingProblem(NamedTuple):
    """What is wrong with one setting of a source: its key, why, and what to do about it."""

    key: str
    what: str
    fix: str


class NamedPath(NamedTuple):
    """A path that a source's settings name: its key, and what must be there."""

    key: str
    path: Path
    kind: Literal["file", "folder", "file or folder"]


class Repository(NamedTuple):
    """A data set that is fetched from the hub: the key that names it, `owner/name`, and a branch, tag or commit (None
    is the main branch)."""

    key: str
    name: str
    revision: str | None


class SourceFiles(Protocol):
    """Where what a source's settings name can be read."""

    def data(self, path: str) -> str:
        """Where data and media are."""

    def source_code(self, path: str) -> Path:
        """Where a file with a user's code is."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Glance:
    """What a source says of itself at a glance.

    Attributes:
        rows: Its rows, usable or not; None where only a preparation can tell.
        is_exact: Whether the number is no estimate.
        names: The data sources that its rows belong to; None where a column tells.
        columns: The columns that rows have beside those with a meaning; None where that is not known.
        problem: Why it cannot be read, and nothing else is known; None where it can.
    """

    rows: int | None = None
    is_exact: bool = True
    names: frozenset[str] | None = None
    columns: frozenset[str] | None = None
    problem: str | None = None


class DataSource(Section, ABC):
    """A source of rows, as a config describes it, and all that the house asks of one.

    A kind of source is a subclass in a file of its own, with its settings as fields, and stands in
    `rl_core.sources.kinds`. What is abstract here it must answer; the rest it may.
    """

    type: str
    """Selects the kind."""

    @abstractmethod
    def open(self) -> RowReader:
        """Open it, to read its rows: from the first one each time, and the same ones.

        Raises:
            ValueError: It does not exist, cannot be read, or misses a configured column altogether.
        """

    @abstractmethod
    def fingerprint(self) -> str:
        """Identity of its content: another one where any row, image or video may be another. Prepared data is taken
        for that of another run where the fingerprints are equal. Not the path: a source that was moved is the same.

        Raises:
            ValueError: As `open` does.
        """

    @abstractmethod
    def first_rows(self, count: int) -> Self:
        """The source of its first rows, `count` of them at most."""

    @abstractmethod
    def glance(self) -> Glance:
        """What can be said of its rows in little time, however many there are, and without running a user's code.

        Raises:
            ValueError: It cannot be read.
            OSError: As above.
        """

    @property
    def known_rows(self) -> int | None:
        """Its number of rows where the settings say it; None where it must be looked at."""
        return None

    @property
    def names_its_rows(self) -> bool:
        """Whether a column says which data source a row belongs to, so that the source's own name is not used."""
        return False

    @property
    def parts(self) -> Mapping[str, "DataSource"]:
        """The sources that it consists of, by their names; none for a source that reads rows itself."""
        return {}

    def setting_problems(self) -> Iterator[SettingProblem]:
        """What is wrong with its settings, as far as they and small files show it, in milliseconds."""
        yield from ()

    def trial_problems(self) -> Iterator[SettingProblem]:
        """What only its first rows show. A run asks before it starts; a plan, which is to be quick, does not."""
        yield from ()

    def paths(self) -> Iterator[NamedPath]:
        """The files and folders that its settings name and that must be there."""
        yield from ()

    def code_paths(self) -> Iterator[str]:
        """The files with a user's code, as its settings name them: a run keeps copies of them."""
        yield from ()

    def repository(self) -> Repository | None:
        """What is fetched from the hub where no folder of this machine has its name; None for a source that is not."""
        return None

    def shared_with(self, other: "DataSource") -> str | None:
        """Why its rows are in another source of its kind too, as far as the settings show it; None where they do
        not."""
        return None

    def located(self, files: SourceFiles) -> Self:
        """The source with its paths as they can be read from here. Its rows keep the name that they have."""
        return self
