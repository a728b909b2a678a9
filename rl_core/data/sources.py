"""Opens any configured source."""

from collections.abc import Iterator

from rl_core.config.data import CountingSource, HubSource, LocalSource, MixtureSource, Source
from rl_core.data.counting import CountingReader
from rl_core.data.hub import open_hub
from rl_core.data.local import open_local
from rl_core.data.mixture import MixtureReader
from rl_core.data.rows import BadRow, Row, RowReader


def open_source(source: Source) -> RowReader:
    """The reader of a source.

    Raises:
        ValueError: The source does not exist, cannot be read, or misses a configured column altogether.
    """
    match source:
        case CountingSource():
            return CountingReader(source)
        case LocalSource():
            return open_local(source)
        case HubSource():
            return open_hub(source)
        case MixtureSource():
            return MixtureReader(_open_parts(source))


def _open_parts(mixture: MixtureSource) -> dict[str, RowReader]:
    """By name, in the order of the names: mixtures with equal sources are equal, so they have equal rows too. Raises
    ValueError with the problems of every part."""
    readers, problems = {}, []
    for name, source in sorted(mixture.sources.items()):
        try:
            readers[name] = open_source(source)
        except ValueError as error:
            problems.append(f"{name}: {error}")
    if problems:
        raise ValueError("\n".join(problems))
    return readers


def iter_rows(source: Source) -> Iterator[Row | BadRow]:
    """Every row of a source in order; one that cannot be read is a BadRow. Raises ValueError as open_source does."""
    yield from open_source(source)
