"""What a data source says of itself at a glance: its rows, names and columns, before anything is prepared.

The work is bounded: footers of Parquet files, the beginning of JSONL. What it takes more to know is not known here.
"""

import difflib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final

from rl_core.config.data import Columns, CountingSource, HubSource, LocalSource, MixtureSource, SingleSource, Source
from rl_core.config.run import RunConfig
from rl_core.data.columns import check_columns
from rl_core.data.local import check_rows, find_reader
from rl_core.data.tables import JsonlReader, TableReader
from rl_core.planning.problem import Problem
from rl_core.planning.sources import configured_sources

MOST_BYTES: Final = 1 << 26
"""Of JSONL, which are read to count its lines; of a longer file the rest is estimated."""

_ROWS_LOOKED_AT = 256
_CHUNK = 1 << 20


@dataclass(frozen=True, kw_only=True, slots=True)
class Glance:
    """One source.

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


def glance_at(config: RunConfig) -> dict[str, Glance]:
    """Every source by its key, those of a mixture one by one."""
    return {key: _glance(source) for key, source in configured_sources(config)}


def split_glance(config: RunConfig, split: Source, key: str, glances: Mapping[str, Glance]) -> Glance:
    """A whole split; one that cannot be read is as one of which nothing is known."""
    if not isinstance(split, MixtureSource):
        return glances[key]
    parts = {name: glances[f"{key}.sources.{name}"] for name in split.sources}
    rows = [part.rows for part in parts.values()]
    known = [count for count in rows if count is not None]
    named_by_column = any(_data_source_key(source) for source in split.sources.values())
    columns = [part.columns for part in parts.values() if part.columns is not None]
    return Glance(
        rows=sum(known) if len(known) == len(rows) else None,
        is_exact=all(part.is_exact for part in parts.values()),
        names=None if named_by_column else frozenset(parts),
        columns=frozenset().union(*columns) if len(columns) == len(parts) else None,
    )


def _data_source_key(source: SingleSource) -> str | None:
    return None if isinstance(source, CountingSource) else source.columns.data_source_key


def _glance(source: SingleSource) -> Glance:
    match source:
        case CountingSource():
            return Glance(rows=source.size, names=frozenset([source.type]), columns=frozenset(["objects"]))
        case HubSource():
            name = source.name.rpartition("@")[0]
            return Glance(names=None if source.columns.data_source_key else frozenset([name]))
        case LocalSource():
            try:
                return _local_glance(source)
            except (ValueError, OSError) as error:
                return Glance(problem=str(error))


def _local_glance(source: LocalSource) -> Glance:
    reader = find_reader(source)
    if isinstance(reader, TableReader):
        return _table_glance(reader, source)
    return Glance(rows=len(reader), names=frozenset([reader.name]))


def _table_glance(reader: TableReader, source: LocalSource) -> Glance:
    if isinstance(reader, JsonlReader):
        columns, is_whole = _first_columns(reader)
        rows, is_exact = _count_lines(reader)
    else:
        columns, is_whole = reader.columns(), True
        rows, is_exact = reader.count(), True
    if is_whole:
        check_rows(reader)
        check_columns(columns, source.columns, place=source.path)
    limited = rows if source.limit is None else min(rows, source.limit)
    return Glance(
        rows=limited,
        is_exact=is_exact or limited == source.limit,
        names=None if source.columns.data_source_key else frozenset([reader.name]),
        columns=frozenset(columns) - _used(source.columns) if is_whole else None,
    )


def _used(columns: Columns) -> set[str | None]:
    return {columns.prompt_key, columns.answer_key, columns.image_key, columns.video_key, columns.data_source_key}


def _first_columns(reader: JsonlReader) -> tuple[set[str], bool]:
    """The columns of the first rows, and whether those are all rows."""
    rows = list(islice(reader.raw_rows(), _ROWS_LOOKED_AT + 1))
    names = {name for row in rows if isinstance(row.values, dict) for name in row.values}
    return names, len(rows) <= _ROWS_LOOKED_AT


def _count_lines(reader: JsonlReader) -> tuple[int, bool]:
    """Rows of the files, and whether all of them were read."""
    sizes = [path.stat().st_size for path in reader.files]
    if sum(sizes) <= MOST_BYTES:
        return reader.count(), True
    lines = read = 0
    for chunk in _chunks(reader.files, MOST_BYTES):
        lines += chunk.count(b"\n")
        read += len(chunk)
    return round(lines / read * sum(sizes)), False


def _chunks(files: list[Path], most_bytes: int) -> Iterator[bytes]:
    left = most_bytes
    for path in files:
        with path.open("rb") as file:
            while left > 0 and (chunk := file.read(min(_CHUNK, left))):
                left -= len(chunk)
                yield chunk


def source_problems(config: RunConfig, glances: Mapping[str, Glance]) -> list[Problem]:
    """Sources that cannot be read, and names of sources and columns that there are not."""
    problems = [
        Problem(where=key, what=glance.problem, fix="correct the path, the columns or the file")
        for key, glance in glances.items()
        if glance.problem is not None
    ]
    train = split_glance(config, config.data.train, "data.train", glances)
    validation = split_glance(config, config.data.validation, "data.validation", glances)
    if train.names is not None and not isinstance(config.data.train, MixtureSource):  # planning looks at mixtures
        problems += weight_name_problems(config, train.names)
    if train.names is not None and validation.names is not None:
        problems += judged_name_problems(config, train.names | validation.names)
    if validation.columns is not None:
        problems += category_problems(config, validation.columns)
    return problems


def weight_name_problems(config: RunConfig, names: Collection[str]) -> Iterator[Problem]:
    """Weights of data sources that the training rows do not have, and data sources without one."""
    weights = config.data.source_weights
    if weights is not None and set(weights) != set(names):
        yield Problem(
            where="data.source_weights",
            what=f"it names {', '.join(weights) or 'nothing'}, and the training rows are of {', '.join(sorted(names))}",
            fix="give each data source a weight, or set it to null",
        )


def judged_name_problems(config: RunConfig, names: Collection[str]) -> Iterator[Problem]:
    """Rewards for data sources that no row has: a slip of the pen where one is called nearly so, and else a table that
    serves other data too."""
    for name in sorted(set(config.reward.by_source) - set(names)):
        close = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
        meant = f"; did you mean {close[0]!r}?" if close else ""
        yield Problem(
            where=f"reward.by_source.{name}",
            what=f"no row is of a data source of that name; they are of {', '.join(sorted(names))}{meant}",
            fix="correct the name, or leave it out",
            fatal=bool(close),
        )


def category_problems(config: RunConfig, columns: Collection[str]) -> Iterator[Problem]:
    """Columns that split the accuracy into tables, and that no held-out row has."""
    for name in config.evaluation.categories:
        if name not in columns:
            close = difflib.get_close_matches(name, columns, n=1, cutoff=0.6)
            there = f"did you mean {close[0]!r}?" if close else f"there is {', '.join(sorted(columns)) or 'none'}"
            yield Problem(
                where="evaluation.categories",
                what=f"{name!r} is no further column of the held-out rows; {there}",
                fix="name columns that they have",
            )
