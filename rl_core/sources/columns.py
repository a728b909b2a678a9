"""Turns a row of a table (names and values) into a Row, as the configured columns say."""

import difflib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from PIL import Image

from rl_core.answers import read_answer
from rl_core.files import lies_below
from rl_core.section import Section
from rl_core.sources.conversation import IMAGE_PLACE, VIDEO_PLACE, read_conversation
from rl_core.sources.rows import BadRow, ImageInput, Row, Turn, VideoInput, cut_text, json_columns, unwritable_row

_NAMED_COLUMNS = 30
_LONGEST_NAME = 60

Medium = TypeVar("Medium")


class Columns(Section):
    """The meanings of the columns (EasyR1's prompt_key, image_key and answer_key)."""

    prompt_key: str = "problem"
    """Column with the question, or with the turns of a conversation that ends with it: a list of mappings with `role`
    and `content`, or with `from` and `value`. Each `<image>`, or part of type image, is the place of one image."""
    image_key: str | None = "images"
    """Column with one image or a list of images (PIL images, encoded bytes or paths), which may be empty; null for a
    text-only source."""
    images_first: bool = False
    """Put images and videos before a question that marks no place for them; otherwise such a row is rejected."""
    video_key: str | None = "videos"
    """Column with one video or a list of videos (encoded bytes or paths), which may be empty; null for a source without
    videos. Each `<video>` in the question is the place of one."""
    answer_key: str = "answer"
    """Column with the ground truth. If it is the same column as prompt_key, the answer is the last turn of its
    conversations, which is the assistant's."""
    data_source_key: str | None = None
    """Column with the name of the row's data source. Null gives every row the name of its file or repository, or the
    name of its source in a mixture."""

    @property
    def meanings(self) -> frozenset[str]:
        """The names of all columns that have a meaning. Every other column is kept in `Row.extra`."""
        named = (self.prompt_key, self.answer_key, self.image_key, self.video_key, self.data_source_key)
        return frozenset(name for name in named if name is not None)


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
            answer = read_answer(asked.answer if is_answered else values.get(keys.answer_key))
            column = keys.image_key or ""
            images = self._media(items_of(values, keys.image_key), asked.images, "images", image_input)
            column = keys.video_key or ""
            videos = self._media(items_of(values, keys.video_key), asked.videos, "videos", video_input)
            column = keys.prompt_key
            question = self._with_places(asked.question, asked.history, images=len(images), videos=len(videos))
            column = keys.data_source_key or ""
            data_source = self._data_source(values)
        except ValueError as error:
            return BadRow(index=index, column=column, reason=str(error), origin=origin)
        extra = json_columns({name: value for name, value in values.items() if name not in keys.meanings})
        return Row(
            index=index,
            question=question,
            images=images,
            answer=answer,
            data_source=data_source,
            videos=videos,
            history=asked.history,
            extra=extra,
            origin=origin,
            question_column=keys.prompt_key,
            answer_column=keys.answer_key,
            image_column=keys.image_key or "",
            video_column=keys.video_key or "",
        )

    def _data_source(self, values: Mapping[str, Any]) -> str:
        if self.columns.data_source_key is None:
            return self.data_source
        value = values.get(self.columns.data_source_key)
        if not isinstance(value, str) or not value.strip():
            raise ValueError("the data source is missing or no text")
        return value

    def _media(
        self, items: Sequence[Any], in_turns: Sequence[Any], kind: str, read: Callable[..., Medium]
    ) -> tuple[Medium, ...]:
        if items and in_turns:  # their order is unknown
            raise ValueError(f"there are {kind} in the column and in the turns of the conversation")
        return tuple(read(item, media_dir=self.media_dir, caches=self.caches) for item in items or in_turns)

    def _with_places(self, question: str, history: Sequence[Turn], *, images: int, videos: int) -> str:
        """The question, with a place for every image and video of the row."""
        for place, kind, count in ((VIDEO_PLACE, "video", videos), (IMAGE_PLACE, "image", images)):
            places = question.count(place) + sum(turn.content.count(place) for turn in history)
            if places == 0 and self.columns.images_first:
                question = place * count + question
            elif places != count:
                advice = f"; set columns.images_first to put the {kind}s before such questions" if places == 0 else ""
                raise ValueError(f"{places} {place} in the question and {count} {kind}(s) in the row{advice}")
        return question


def check_columns(available: Collection[str], columns: Columns, *, place: str) -> None:
    """Raises ValueError, which names the nearest columns, where a source lacks a configured column. The default image
    and video columns may be absent, unless there is a column with a similar name."""
    problems = []
    for key in ("prompt_key", "answer_key", "data_source_key", "image_key", "video_key"):
        name, is_media = getattr(columns, key), key in ("image_key", "video_key")
        if name is None or name in available or (is_media and _may_be_absent(key, name, available)):
            continue
        advice = f"columns.{key}" + ("; null for rows without" if is_media else "")
        problems.append(f"data source {place} has no column {name!r} ({advice}){nearest_columns(name, available)}")
    if problems:
        raise ValueError("\n".join(problems))


def items_of(values: Mapping[str, Any], column: str | None) -> Sequence[Any]:
    """The images or videos in a row's column, which holds nothing, one of them, or a list."""
    value = values.get(column) if column else None
    if value is None:
        return ()
    return value if isinstance(value, list | tuple) else (value,)


def _may_be_absent(key: str, name: str, available: Collection[str]) -> bool:
    return name == Columns.model_fields[key].default and not _close(name, available)


def _close(name: str, available: Collection[str]) -> list[str]:
    folded = {candidate.lower(): candidate for candidate in available}
    return [folded[match] for match in difflib.get_close_matches(name.lower(), folded, n=3, cutoff=0.6)]


def nearest_columns(name: str, available: Collection[str]) -> str:
    """The end of a sentence about a missing column: the nearest names, or all names."""
    close = _close(name, available)
    if close:
        return f"; did you mean {' or '.join(repr(cut_text(name, _LONGEST_NAME)) for name in close)}?"
    return f"; its columns are {name_columns(available)}"


def name_columns(available: Collection[str]) -> str:
    """Names of columns for a message: a damaged file may have thousands of long ones."""
    named = [repr(cut_text(name, _LONGEST_NAME)) for name in sorted(available)[:_NAMED_COLUMNS]]
    more = len(available) - _NAMED_COLUMNS
    return ", ".join(named) + (f" and {more} more" if more > 0 else "")


def image_input(value: Any, *, media_dir: Path, caches: Sequence[Path] = ()) -> ImageInput:
    """An image from a row: a PIL image, encoded bytes, a path, or a mapping with `bytes` or `path`. Raises ValueError
    for anything else, and for a path that leads out of `media_dir` and `caches`."""
    if isinstance(value, Image.Image):
        return value
    return _medium(value, media_dir, caches, kind="image", forms="bytes, a path or a PIL image")


def video_input(value: Any, *, media_dir: Path, caches: Sequence[Path] = ()) -> VideoInput:
    """A video from a row, as `image_input` reads an image."""
    return _medium(value, media_dir, caches, kind="video", forms="bytes or a path")


def _medium(value: Any, media_dir: Path, caches: Sequence[Path], *, kind: str, forms: str) -> bytes | Path:
    if isinstance(value, Mapping):
        value = value.get("bytes") or value.get("path")
    match value:
        case bytes():
            return value
        case None | "":
            raise ValueError(f"the {kind} is missing (null)")
        case str() if "://" in value[:10]:
            raise ValueError(f"{value} is an address; {kind}s are read from files, download it first")
        case str() | Path():
            return _media_file(value, media_dir, caches)
        case _:
            raise ValueError(f"the {kind} is {type(value).__name__}, not {forms}")


def _media_file(path: str | Path, media_dir: Path, caches: Sequence[Path]) -> Path:
    """The file that a row names, which must not be any file of this machine."""
    if "\0" in str(path):
        raise ValueError(f"the path {str(path)!r} holds a NUL character, which no file's name has")
    file = media_dir / path
    if any(lies_below(file, folder) for folder in (media_dir, *caches)):
        return file
    raise ValueError(f"the file {path} leads out of {media_dir}; set media_dir to the folder that holds all media")
