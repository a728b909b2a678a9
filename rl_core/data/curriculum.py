"""The column that a curriculum follows: every training row needs a number in it."""

import math
from collections.abc import Iterable, Iterator

from rl_core.sources.rows import BadRow, Row


def with_numbers(rows: Iterable[Row | BadRow], column: str) -> Iterator[Row | BadRow]:
    """The rows; one without a finite number in `column` is unusable."""
    for row in rows:
        if isinstance(row, Row) and not _is_number(row.extra.get(column)):
            found = f"{row.extra[column]!r}" if column in row.extra else "no such column"
            reason = f"data.curriculum needs a number here and finds {found}"
            yield BadRow(index=row.index, column=column, reason=reason, origin=row.origin)
        else:
            yield row


def _is_number(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return math.isfinite(float(value))
    except OverflowError:  # of a whole number with more digits than a float has room for
        return False
