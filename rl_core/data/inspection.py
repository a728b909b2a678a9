"""Looks at a user's own data and finds out how to read it, for `sightline init`."""

from dataclasses import dataclass
from itertools import islice

from rl_core.data.column_guesses import NamedColumns, Values, guess_columns
from rl_core.data.media_folder import find_media_folder
from rl_core.sources.hub import HubSource
from rl_core.sources.local import LocalSource
from rl_core.sources.tables import FileTable, TableReader

_SAMPLED_ROWS = 64


@dataclass(frozen=True, kw_only=True, slots=True)
class Inspection:
    """What was found out about a user's data.

    Attributes:
        source: The data as a config names it, with the guessed columns.
        kind: "parquet", "jsonl", "json", "csv", "geometry3k", "imagefolder" or "hub".
        row_count: Number of rows.
        columns: Names of all columns; empty for folders of items or classes.
        doubts: A sentence about each guess among several possibilities.
    """

    source: LocalSource | HubSource
    kind: str
    row_count: int
    columns: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()


def inspect_data(source: LocalSource | HubSource, named: NamedColumns | None = None) -> Inspection:
    """Look at a file, a folder or a dataset of the hub, and guess its columns and where its images are.

    Args:
        source: The data, with its `media_dir` if that is known.
        named: Columns that need not be guessed.

    Raises:
        ValueError: Nothing can be read, or no column looks like a question or an answer; the message names the columns.
    """
    named = named or NamedColumns()
    if isinstance(source, HubSource):
        return _inspect_table(source.reader(), source, named, kind="hub")
    reader = source.reader()
    if isinstance(reader, FileTable):
        reader.check_rows()
        return _inspect_table(reader, source, named, kind=reader.kind)
    if unused := named.given():
        raise ValueError(f"{source.path} is a {reader.kind}, which has no columns to be named ({', '.join(unused)})")
    return Inspection(source=source, kind=reader.kind, row_count=reader.row_count)


def _inspect_table(
    table: TableReader, source: LocalSource | HubSource, named: NamedColumns, *, kind: str
) -> Inspection:
    names = tuple(sorted(table.column_names()))
    sample: list[Values] = [
        raw.values for raw in islice(table.raw_rows(), _SAMPLED_ROWS) if isinstance(raw.values, dict)
    ]
    columns, doubts = guess_columns(table.place, names, sample, named)
    source = source.model_copy(update={"columns": columns})
    if isinstance(source, LocalSource) and isinstance(table, FileTable) and source.media_dir is None:
        folder, doubt = find_media_folder(table, source.columns, beside=table.files[0].parent)
        source = source.model_copy(update={"media_dir": folder and str(folder)})
        doubts += [doubt] if doubt else []
    return Inspection(source=source, kind=kind, row_count=table.row_count, columns=names, doubts=tuple(doubts))
