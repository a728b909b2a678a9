"""Turns a row of a table (names and values) into a Row, as the configured columns say."""

import difflib
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import field_validator

from rl_core.answer_forms import find_answer
from rl_core.answers import Answer, answer_text, read_answer
from rl_core.section import Section
from rl_core.sources.conversation import IMAGE_PLACE, VIDEO_PLACE, Placed, place_images, read_conversation
from rl_core.sources.media import images_in, media_items, videos_in
from rl_core.sources.options import AnswerAs, ColumnsKey, columns_named, read_options, right_letter
from rl_core.sources.rows import BadRow, Row, json_columns, unwritable_row
from rl_core.wording import shortened

_NAMED_COLUMNS = 30
_LONGEST_NAME = 60
_LONGEST_TEXT = 200


class Columns(Section):
    """The meanings of the columns (EasyR1's prompt_key, image_key and answer_key)."""

    prompt_key: str = "problem"
    """Column with the question, or with a conversation that ends with it: turns with `role` and `content`, or `from`
    and `value`. Each `<image>`, or part of type image, is the place of one image."""
    image_key: ColumnsKey | None = "images"
    """Column with one image or a list (PIL images, encoded bytes, base64, data URLs or paths), or several columns in
    the order of their images, some of which may be empty; null for a source without images."""
    images_first: bool = False
    """Put images and videos before a question that marks no place for them; otherwise such a row is rejected."""
    video_key: str | None = "videos"
    """Column with one video or a list (encoded bytes, base64 or paths), whose places are `<video>`; null for a source
    without videos."""
    answer_key: str = "answer"
    """Column with the ground truth, or a field or item inside a column (`reward_model.ground_truth`, `answers.0`). If
    it is the same column as prompt_key, the answer is the last turn."""
    answer_pattern: str | None = None
    """Regular expression whose one group is the answer, at its last match in the answer column; a row without a match
    is rejected. `####\\s*(.+)` reads GSM8K's answers."""
    class_names: tuple[str, ...] | None = None
    """Names of the classes whose numbers, from 0, the answer column holds: the answer becomes the name."""
    options_key: ColumnsKey | None = None
    """Column with the options of a multiple choice (a list, or a mapping of letters to texts), or a column for each
    option, in order; the prompt template gets the mapping as `options`, and the answer becomes a letter."""
    answer_as: AnswerAs = "letter"
    """How the answer names its option: by letter, text, index from 0, or number from 1."""
    data_source_key: str | None = None
    """Column with the name of the row's data source; null takes the name in the mixture, or of the file or
    repository."""

    @property
    def meanings(self) -> frozenset[str]:
        """The names of all columns that have a meaning as a whole. Every other column is kept in `Row.extra`, options
        too, and an answer column of which a part is read."""
        answer = None if self.answer_pattern and self.answer_key != self.prompt_key else self.answer_key
        images = columns_named(self.image_key)
        named = (self.prompt_key, answer, *images, self.video_key, self.data_source_key)
        return frozenset(name for name in named if name is not None)

    @field_validator("answer_pattern")
    @classmethod
    def _has_one_group(cls, pattern: str | None) -> str | None:
        if pattern is None:
            return None
        try:
            groups = re.compile(pattern).groups
        except re.error as error:
            raise ValueError(f"{pattern!r} is no regular expression: {error}") from None
        if groups != 1:
            raise ValueError(f"{pattern!r} has {groups} groups; write one, (...), around the answer, others as (?:...)")
        return pattern


@dataclass(frozen=True, kw_only=True, slots=True)
class RowParser:
    """Reads the rows of one table. No path of an image or video may lead out of `media_dir`, from which relative paths
    start, and `caches`, where `datasets` puts the files that it fetches."""

    columns: Columns
    data_source: str
    media_dir: Path
    caches: tuple[Path, ...] = ()

    def parse(self, values: Mapping[str, Any], *, index: int, origin: str = "") -> Row | BadRow:
        """A row, or why it cannot be used."""
        # Before anything else, because no message may quote such a text either.
        if (bad := unwritable_row(values, index=index, origin=origin)) is not None:
            return bad
        keys = self.columns
        column = keys.prompt_key
        try:
            is_answered = keys.answer_key == keys.prompt_key
            asked = read_conversation(values.get(keys.prompt_key), is_answered=is_answered)
            column = keys.answer_key
            answer = self._part(read_answer(asked.answer if is_answered else field_of(values, keys.answer_key)))
            answer = answer if keys.class_names is None else _named(answer, keys.class_names)
            column = " and ".join(columns_named(keys.options_key))
            options = read_options(values, keys.options_key) if keys.options_key else {}
            column = keys.answer_key
            answer = right_letter(answer, options, keys.answer_as) if options else answer
            column = " and ".join(columns_named(keys.image_key))
            cells = self._media(values, keys.image_key, asked.images, "images")
            images = []
            for name, cell in cells.items():
                column = name
                images.append(images_in(cell, media_dir=self.media_dir, caches=self.caches))
            image_column = " and ".join(cells)
            column = keys.video_key or ""
            cells = self._media(values, keys.video_key, asked.videos, "videos")
            column = video_column = next(iter(cells), "")
            videos = videos_in(cells.get(column), media_dir=self.media_dir, caches=self.caches)
            column = keys.prompt_key
            turns = [*(turn.content for turn in asked.history), asked.question]
            placed = place_images(turns, options, images)
            question = self._with_places(placed, videos=len(videos))
            column = keys.data_source_key or ""
            data_source = self._data_source(values)
        except ValueError as error:
            return BadRow(index=index, column=column, reason=str(error), origin=origin)
        extra = json_columns({name: value for name, value in values.items() if name not in keys.meanings})
        if placed.options != options:  # a file that this row is written to has the places that its question has
            names, texts = columns_named(keys.options_key), placed.options
            extra |= {names[0]: dict(texts)} if len(names) == 1 else dict(zip(names, texts.values(), strict=False))
        return Row(
            index=index,
            question=question,
            images=tuple(placed.images),
            answer=answer,
            data_source=data_source,
            videos=videos,
            history=tuple(turn._replace(content=text) for turn, text in zip(asked.history, placed.turns, strict=False)),
            asks=asked.asks,
            extra=extra,
            options=dict(placed.options),
            origin=origin,
            question_column=keys.prompt_key,
            answer_column=keys.answer_key,
            image_column=image_column,
            video_column=video_column,
        )

    def _part(self, answer: Answer) -> Answer:
        pattern = self.columns.answer_pattern
        if pattern is None:
            return answer
        found = find_answer(pattern, answer_text(answer))
        if found is None:
            text = shortened(answer_text(answer), _LONGEST_TEXT)
            raise ValueError(f"columns.answer_pattern {pattern!r} finds no answer in {text!r}")
        return found

    def _data_source(self, values: Mapping[str, Any]) -> str:
        if self.columns.data_source_key is None:
            return self.data_source
        value = values.get(self.columns.data_source_key)
        if not isinstance(value, str) or not value.strip():
            raise ValueError("the data source is missing or no text")
        return value

    def _media(
        self, values: Mapping[str, Any], key: ColumnsKey | None, in_turns: Sequence[Any], kind: str
    ) -> dict[str, Any]:
        """The columns that hold a row's images or videos, and what they hold."""
        cells = {name: values.get(name) for name in columns_named(key)}
        if not in_turns:
            return cells
        if media_items(list(cells.values())):  # their order is unknown
            raise ValueError(f"there are {kind} in the column and in the turns of the conversation")
        return {self.columns.prompt_key: in_turns}

    def _with_places(self, placed: Placed, *, videos: int) -> str:
        """The question, with a place for every image and video of the row."""
        question = placed.turns[-1]
        for place, kind, count in ((VIDEO_PLACE, "video", videos), (IMAGE_PLACE, "image", len(placed.images))):
            places = sum(text.count(place) for text in placed.turns)
            if places < count:
                places += sum(text.count(place) for text in placed.options.values())
            if places == 0 and self.columns.images_first:
                question = place * count + question
            elif places != count:
                advice = f"; set columns.images_first to put the {kind}s before such questions" if places == 0 else ""
                raise ValueError(f"{places} {place} in the question and {count} {kind}(s) in the row{advice}")
        return question


def _named(answer: Answer, names: Sequence[str]) -> str:
    text = answer_text(int(answer) if isinstance(answer, float) and answer.is_integer() else answer)
    if not text.isdecimal() or int(text) >= len(names):
        raise ValueError(f"{shortened(text, _LONGEST_TEXT)!r} is no number of one of the {len(names)} class_names")
    return names[int(text)]


def check_columns(available: Collection[str], columns: Columns, *, place: str) -> None:
    """Raises ValueError, which names the nearest columns, where a source lacks a configured column. The default image
    and video columns may be absent, unless there is a column with a similar name."""
    problems = []
    keys = ("prompt_key", "answer_key", "data_source_key", "image_key", "video_key", "options_key")
    named = [(key, name) for key in keys for name in columns_named(getattr(columns, key))]
    for key, name in named:
        is_media = key in ("image_key", "video_key")
        if name in available or (is_media and _may_be_absent(key, name, available)):
            continue
        if key == "answer_key" and name.partition(".")[0] in available:  # the rows show whether it has the field
            continue
        advice = f"columns.{key}" + ("; null for rows without" if is_media else "")
        problems.append(f"data source {place} has no column {name!r} ({advice}){nearest_columns(name, available)}")
    if problems:
        raise ValueError("\n".join(problems))


def field_of(values: Mapping[str, Any], name: str) -> Any:
    """The value of a column, of a field inside it (`column.field`), or of an item of a list (`column.0`); None where
    the row lacks the column. Raises ValueError where the column has no such field."""
    if name in values or "." not in name:
        return values.get(name)
    column, _, field = name.partition(".")
    inside = values.get(column)
    if inside is None:
        return None
    if isinstance(inside, list | tuple):
        inside = {str(place): item for place, item in enumerate(inside)}
    if not isinstance(inside, Mapping):
        raise ValueError(f"the column {column!r} is {type(inside).__name__}, which has no field {field!r}")
    if field not in inside and field.partition(".")[0] not in inside:
        raise ValueError(f"the column {column!r} has no field {field!r}{nearest_columns(field, inside)}")
    return field_of(inside, field)


def _may_be_absent(key: str, name: str, available: Collection[str]) -> bool:
    return name == Columns.model_fields[key].default and not _close(name, available)


def _close(name: str, available: Collection[str]) -> list[str]:
    folded = {candidate.lower(): candidate for candidate in available}
    return [folded[match] for match in difflib.get_close_matches(name.lower(), folded, n=3, cutoff=0.6)]


def nearest_columns(name: str, available: Collection[str]) -> str:
    """The end of a sentence about a missing column: the nearest names, or all names."""
    close = _close(name, available)
    if close:
        return f"; did you mean {' or '.join(repr(shortened(name, _LONGEST_NAME)) for name in close)}?"
    return f"; its columns are {name_columns(available)}"


def name_columns(available: Collection[str]) -> str:
    """Names of columns for a message: a damaged file may have thousands of long ones."""
    named = [repr(shortened(name, _LONGEST_NAME)) for name in sorted(available)[:_NAMED_COLUMNS]]
    more = len(available) - _NAMED_COLUMNS
    return ", ".join(named) + (f" and {more} more" if more > 0 else "")
