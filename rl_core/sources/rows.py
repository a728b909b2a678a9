"""A row of a source as it was read, or why it could not be read."""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

from PIL import Image

from rl_core.answers import Answer, answer_text, written
from rl_core.digests import file_digests
from rl_core.files import check_regular
from rl_core.wording import shortened

ImageInput = bytes | Path | Image.Image
"""An image as a source has it: encoded, as a file, or decoded."""

VideoInput = bytes | Path
"""A video as a source has it: encoded, or as a file."""

_DEEPEST = 100
_LONGEST_NAME = 100
_LONGEST_REASON = 500

Role = Literal["system", "user", "assistant", "tool"]


class Turn(NamedTuple):
    """One turn of a conversation; its content has one `<image>` for each image and one `<video>` for each video."""

    role: Role
    content: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One readable row.

    Attributes:
        index: Number of the row in its source, from 0; unreadable rows are counted too.
        question: The last turn, with one `<image>` for each image and one `<video>` for each video.
        images, videos: In the order of their places in the whole conversation. None has been opened yet.
        answer: Ground truth, with the type that its column has.
        history: The turns before the question, a system turn only at the start.
        asks: Whose turn the question is: the user's, or in a cold start that of a tool with its result.
        extra: Every further column that JSON can hold.
        options: [letter] -> text of the options of a multiple choice, where the columns name them.
        origin: Where a person finds the row: file and line, or item folder.
    """

    index: int
    question: str
    images: tuple[ImageInput, ...]
    answer: Answer
    data_source: str
    videos: tuple[VideoInput, ...] = ()
    history: tuple[Turn, ...] = ()
    asks: Role = "user"
    extra: dict[str, Any] = field(default_factory=dict)
    options: dict[str, str] = field(default_factory=dict)
    origin: str = ""
    question_column: str = "question"
    answer_column: str = "answer"
    image_column: str = "images"
    video_column: str = "videos"

    @property
    def answer_text(self) -> str:
        """The answer; its JSON if it is no text."""
        return answer_text(self.answer)

    @property
    def template_values(self) -> dict[str, Any]:
        """What a prompt template can show besides the question: every further column, and the options."""
        return {**self.extra, "options": self.options} if self.options else self.extra

    def as_bad(self, column: str, reason: str) -> "BadRow":
        """The row as one that cannot be used."""
        return BadRow(index=self.index, column=column, reason=reason, origin=self.origin)


@dataclass(frozen=True, kw_only=True, slots=True)
class BadRow:
    """A row that cannot be used, and why. Long texts are cut, because they may quote megabytes of the row."""

    index: int
    column: str
    reason: str
    origin: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "column", shortened(self.column, _LONGEST_NAME))
        object.__setattr__(self, "reason", shortened(self.reason, _LONGEST_REASON))

    def __str__(self) -> str:
        place = f" ({self.origin})" if self.origin else ""
        return f"row {self.index}{place}, column {self.column!r}: {self.reason}"


def unwritable_row(values: Mapping[str, Any], *, index: int, origin: str) -> BadRow | None:
    """A BadRow if a column holds a value that no tokenizer and no file accepts."""
    for name, value in values.items():
        try:
            _check_writable((name, value), depth=0)
        except ValueError as error:
            plain_name = name.encode(errors="backslashreplace").decode()
            return BadRow(index=index, column=plain_name, reason=str(error), origin=origin)
    return None


def _check_writable(value: Any, *, depth: int) -> None:
    """Raises ValueError for half a surrogate pair, which JSON can express, and for values that are nested too
    deeply."""
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


def media_digests(rows: Iterable[Row | BadRow]) -> list[str | None]:
    """The digest of each image and video file; None for a file that does not exist."""
    shown = (medium for row in rows if isinstance(row, Row) for medium in (*row.images, *row.videos))
    return file_digests(medium for medium in shown if isinstance(medium, Path))


def with_files_checked(rows: Iterable[Row | BadRow]) -> Iterator[Row | BadRow]:
    """The rows; a row whose image or video is no file becomes a BadRow."""
    for row in rows:
        yield row if isinstance(row, BadRow) else _checked(row)


def _checked(row: Row) -> Row | BadRow:
    for kind, column, media in (("image", row.image_column, row.images), ("video", row.video_column, row.videos)):
        for medium in media:
            try:
                if isinstance(medium, Path):
                    check_regular(medium)
            except ValueError as error:
                return row.as_bad(column, f"the {kind} file {error}")
    return row


class RowReader(Protocol):
    """An opened source."""

    @property
    def name(self) -> str:
        """Name of the source, which is the `data_source` of its rows."""

    @property
    def row_count(self) -> int | None:
        """Number of rows, unreadable rows included; None where all rows must be read to know it."""

    def __iter__(self) -> Iterator[Row | BadRow]:
        """Every row in order, the same rows each time."""


def json_value(value: Any) -> Any:
    """The JSON form of a value in a table: times and decimals as they are `written`, non-finite floats as null. Raises
    TypeError for others, such as bytes and images."""
    match written(value):
        case None | bool() | int() | str() as plain:
            return plain
        case float():
            return value if math.isfinite(value) else None
        case Mapping():
            return {str(key): json_value(item) for key, item in value.items()}
        case list() | tuple():
            return [json_value(item) for item in value]
        case _:
            raise TypeError(f"no JSON form for {type(value).__name__}")


def json_columns(values: Mapping[str, Any]) -> dict[str, Any]:
    """The columns that JSON can hold, in their JSON form."""
    columns = {}
    for name, value in values.items():
        try:
            columns[name] = json_value(value)
        except TypeError:
            continue
    return columns
