"""The files of images and videos that rows name."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from rl_core.digests import file_digests
from rl_core.files import check_regular
from rl_core.sources.rows import BadRow, Row


def media_digests(rows: Iterable[Row | BadRow]) -> list[str | None]:
    """The digest of each file, in the order of the rows; None for a file that does not exist."""
    shown = (medium for row in rows if isinstance(row, Row) for medium in (*row.images, *row.videos))
    return file_digests(medium for medium in shown if isinstance(medium, Path))


def with_files_checked(rows: Iterable[Row | BadRow]) -> Iterator[Row | BadRow]:
    """The rows; a row whose image or video is no file becomes a BadRow. No image or video is opened."""
    for row in rows:
        yield row if isinstance(row, BadRow) else _checked(row)


def _checked(row: Row) -> Row | BadRow:
    for kind, column, media in (("image", row.image_column, row.images), ("video", row.video_column, row.videos)):
        for medium in media:
            try:
                if isinstance(medium, Path):
                    check_regular(medium)
            except ValueError as error:
                return BadRow(index=row.index, column=column, reason=f"the {kind} file {error}", origin=row.origin)
    return row
