"""A row of a source as it was read, or why it could not be read."""

import datetime
import decimal
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

from PIL import Image

from rl_core.answers import Answer, answer_text

ImageInput = bytes | Path | Image.Image
"""An image as a source has it: encoded, as a file, or decoded."""

VideoInput = bytes | Path
"""A video as a source has it: encoded, or as a file."""

_DEEPEST = 100
_LONGEST_NAME = 100
_LONGEST_REASON = 500

Role = Literal["system", "user", "assistant"]


class Turn(NamedTuple):
    """One turn of a conversation; its content has one `<image>` an image and one `<video>` a video."""

    role: Role
    content: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One readable row.

    Attributes:
        index: Row number in its source, from 0; unreadable rows are counted too.
        question: The text asked, with one `<image>` an image and one `<video>` a video: the last turn of a
            conversation.
        images: The row's images in the order of their places in the whole conversation, not yet looked at.
        answer: Ground truth, of the type that its column has.
        data_source: Name of the source.
        videos: The row's videos, likewise.
        history: The turns before the question, a system turn only at the start.
        extra: Every other column that JSON can hold.
        origin: Where a person finds the row: file and line, or item folder.
        question_column, image_column, video_column: Names of the columns, for messages about them.
    """

    index: int
    question: str
    images: tuple[ImageInput, ...]
    answer: Answer
    data_source: str
    videos: tuple[VideoInput, ...] = ()
    history: tuple[Turn, ...] = ()
    extra: dict[str, Any] = field(default_factory=dict)
    origin: str = ""
    question_column: str = "question"
    image_column: str = "images"
    video_column: str = "videos"

    @property
    def answer_text(self) -> str:
        """The answer as text: itself, or its JSON."""
        return answer_text(self.answer)


@dataclass(frozen=True, kw_only=True, slots=True)
class BadRow:
    """A row that cannot be used: where it is, which column is at fault, and why. Texts that quote megabytes of the row
    are cut."""

    index: int
    column: str
    reason: str
    origin: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "column", cut_text(self.column, _LONGEST_NAME))
        object.__setattr__(self, "reason", cut_text(self.reason, _LONGEST_REASON))

    def __str__(self) -> str:
        place = f" ({self.origin})" if self.origin else ""
        return f"row {self.index}{place}, column {self.column!r}: {self.reason}"


def cut_text(text: str, longest: int) -> str:
    """The text, without its middle where it has more than `longest` characters: what is wrong often stands last."""
    if len(text) <= longest:
        return text
    half = longest // 2
    return f"{text[:half]} ... {text[-half:]}"


def unwritable_row(values: Mapping[str, Any], *, index: int, origin: str) -> BadRow | None:
    """The row as a BadRow when a column holds what no tokenizer and no file takes; None when all is well."""
    for name, value in values.items():
        try:
            _check_writable((name, value), depth=0)
        except ValueError as error:
            plain_name = name.encode(errors="backslashreplace").decode()
            return BadRow(index=index, column=plain_name, reason=str(error), origin=origin)
    return None


def _check_writable(value: Any, *, depth: int) -> None:
    """Raises ValueError for a text with half a surrogate pair, which JSON can spell, and for endless nesting."""
    if depth > _DEEPEST:
        raise ValueError(f"lists and mappings are nested more than {_DEEPEST} deep")
    match value:
        case str():
            try:
                value.encode()
            except UnicodeEncodeError as error:
                half = value[error.start]
                raise ValueError(f"a text holds {half!r}, which is half a character; write the whole one") from None
        case Mapping():
            for item in value.items():
                _check_writable(item, depth=depth + 1)
        case list() | tuple():
            for item in value:
                _check_writable(item, depth=depth + 1)


class RowReader(Protocol):
    """An opened source."""

    @property
    def name(self) -> str:
        """Name of the source: the `data_source` of its rows."""

    @property
    def row_count(self) -> int | None:
        """Number of rows, unreadable ones included; None where only reading them all tells."""

    def __iter__(self) -> Iterator[Row | BadRow]:
        """Every row in order; the same each time."""


def json_value(value: Any) -> Any:
    """The JSON form of a table's value: times as ISO 8601, decimals as text, non-finite floats as null.

    Raises:
        TypeError: JSON has no form for it (bytes, images).
    """
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else None
        case datetime.date() | datetime.time():
            return value.isoformat()
        case decimal.Decimal():
            return str(value)
        case Mapping():
            return {str(key): json_value(item) for key, item in value.items()}
        case list() | tuple():
            return [json_value(item) for item in value]
        case _:
            raise TypeError(f"no JSON form for {type(value).__name__}")


def json_columns(values: Mapping[str, Any]) -> dict[str, Any]:
    """The columns that JSON can hold, in its form; the others (encoded media) are left out."""
    columns = {}
    for name, value in values.items():
        try:
            columns[name] = json_value(value)
        except TypeError:
            continue
    return columns
