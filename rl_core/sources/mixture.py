"""The kinds of sources that a config may name, and the `mixture` of several of them, one after the other."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Literal, Self

from pydantic import Field
from typing_extensions import override

from rl_core.digests import digest_of
from rl_core.sources.counting import CountingSource
from rl_core.sources.custom import CustomSource
from rl_core.sources.hub import HubSource
from rl_core.sources.local import LocalSource
from rl_core.sources.rows import BadRow, Row, RowReader
from rl_core.sources.source import DataSource, Glance, SourceFiles

SingleSource = Annotated[
    CountingSource  # rendered scenes
    | LocalSource  # files of this machine
    | HubSource  # a dataset of the Hugging Face hub
    | CustomSource,  # a user function
    Field(discriminator="type"),
]


class MixtureSource(DataSource):
    """Several sources, one after the other in the order of their names (see `data.source_weights`)."""

    type: Literal["mixture"]
    sources: dict[str, SingleSource] = Field(min_length=1)
    """The sources by name; this name is the data source of their rows."""

    @property
    def parts(self) -> Mapping[str, DataSource]:
        """The sources in the order of their names."""
        return dict(sorted(self.sources.items()))

    @override
    def open(self) -> "MixtureReader":
        return MixtureReader(open_all(self.parts))

    @override
    def fingerprint(self) -> str:
        return digest_of({name: source.fingerprint() for name, source in self.parts.items()})

    @override
    def first_rows(self, count: int) -> Self:
        return self.model_copy(update={"sources": {name: part.first_rows(count) for name, part in self.parts.items()}})

    @override
    def glance(self) -> Glance:
        parts = {name: source.glance() for name, source in self.parts.items()}
        return joint_glance(parts, names_rows=self.names_its_rows)

    @property
    @override
    def known_rows(self) -> int | None:
        return _sum_of_all([source.known_rows for source in self.parts.values()])

    @property
    @override
    def names_its_rows(self) -> bool:
        return any(source.names_its_rows for source in self.parts.values())

    @override
    def located(self, files: SourceFiles) -> Self:
        return self.model_copy(update={"sources": {name: part.located(files) for name, part in self.sources.items()}})


def open_all(sources: Mapping[str, DataSource]) -> dict[str, RowReader]:
    """Open named sources. Raises ValueError with the problems of all of them."""
    readers, problems = {}, []
    for name, source in sources.items():
        try:
            readers[name] = source.open()
        except ValueError as error:
            problems.append(f"{name}: {error}")
    if problems:
        raise ValueError("\n".join(problems))
    return readers


def joint_glance(parts: Mapping[str, Glance], *, names_rows: bool) -> Glance:
    """What is known about a mixture; `names_rows`: a column of some part names the data source of its rows."""
    columns = [part.columns for part in parts.values() if part.columns is not None]
    return Glance(
        rows=_sum_of_all([part.rows for part in parts.values()]),
        names=None if names_rows else frozenset(parts),
        columns=frozenset().union(*columns) if len(columns) == len(parts) else None,
    )


@dataclass(frozen=True, slots=True)
class MixtureReader:
    """The rows of all parts, numbered consecutively. The name of a part is the data source of its rows, unless a column
    names another one."""

    readers: Mapping[str, RowReader]

    @property
    def name(self) -> str:
        """The names of the parts."""
        return " + ".join(self.readers)

    @property
    def row_count(self) -> int | None:
        """The sum of the parts' rows, if all are known."""
        return _sum_of_all([reader.row_count for reader in self.readers.values()])

    def __iter__(self) -> Iterator[Row | BadRow]:
        index = 0
        for name, reader in self.readers.items():
            for row in reader:
                yield _placed(row, reader, name=name, index=index)
                index += 1


def _sum_of_all(counts: Sequence[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None


def _placed(row: Row | BadRow, reader: RowReader, *, name: str, index: int) -> Row | BadRow:
    origin = row.origin or f"{name} row {row.index}"
    if isinstance(row, BadRow):
        return replace(row, index=index, origin=origin)
    named_by_reader = row.data_source == reader.name
    return replace(row, index=index, origin=origin, data_source=name if named_by_reader else row.data_source)
