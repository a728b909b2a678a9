"""Which rows of a source can be used, as far as that is known without opening an image or a video."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from rl_core.files import check_regular
from rl_core.sources.rows import BadRow, Row


def with_files_checked(rows: Iterable[Row | BadRow]) -> Iterator[Row | BadRow]:
    """The rows; one whose image or video is no file is unusable."""
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
