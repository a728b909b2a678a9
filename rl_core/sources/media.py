"""The files of images and videos that rows name."""

from collections.abc import Iterable
from pathlib import Path

from rl_core.digests import file_digests
from rl_core.sources.rows import BadRow, Row


def media_digests(rows: Iterable[Row | BadRow]) -> list[str | None]:
    """The digest of each, in the order of the rows; None for one that is not there."""
    shown = (medium for row in rows if isinstance(row, Row) for medium in (*row.images, *row.videos))
    return file_digests(medium for medium in shown if isinstance(medium, Path))
