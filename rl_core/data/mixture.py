"""The `mixture` source: several sources, one after the other."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from rl_core.data.rows import BadRow, Row, RowReader


@dataclass(frozen=True, slots=True)
class MixtureReader:
    """Rows of opened sources by their name in the mixture, numbered through. A row carries that name as its data
    source, unless a column names it another one."""

    readers: Mapping[str, RowReader]

    @property
    def name(self) -> str:
        """The sources' names."""
        return " + ".join(self.readers)

    def __len__(self) -> int:
        return sum(map(len, self.readers.values()))

    def __iter__(self) -> Iterator[Row | BadRow]:
        first = 0
        for name, reader in self.readers.items():
            for row in reader:
                yield _placed(row, reader, name=name, first=first)
            first += len(reader)


def _placed(row: Row | BadRow, reader: RowReader, *, name: str, first: int) -> Row | BadRow:
    index, origin = first + row.index, row.origin or f"{name} row {row.index}"
    if isinstance(row, BadRow):
        return replace(row, index=index, origin=origin)
    named_by_reader = row.data_source == reader.name
    return replace(row, index=index, origin=origin, data_source=name if named_by_reader else row.data_source)
