"""Guesses how a user's own data is to be read: `sightline init`."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from PIL import Image

from rl_core.answers import read_answer
from rl_core.config.data import Columns, LocalSource
from rl_core.data.columns import image_input
from rl_core.data.conversation import IMAGE_PLACE, VIDEO_PLACE, read_conversation
from rl_core.data.geometry3k import Geometry3kReader
from rl_core.data.local import find_reader
from rl_core.data.rows import BadRow, Row
from rl_core.data.tables import TableReader

_QUESTION_NAMES = ("problem", "question", "prompt", "query", "instruction", "input", "text")
_IMAGE_NAMES = ("images", "image", "image_path", "image_paths", "img", "picture", "file_name")
_VIDEO_NAMES = ("videos", "video", "video_path", "video_paths", "clip")
_VIDEO_ENDINGS = (".mp4", ".avi", ".mkv", ".mov", ".webm", ".m4v")
_ANSWER_NAMES = ("answer", "solution", "label", "ground_truth", "target", "output", "response")
_SHOWN_ROWS = 5

Values = dict[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Inspection:
    """What was found.

    Attributes:
        source: The data as a config would name it, with the guessed columns.
        kind: "parquet", "jsonl", "json", "csv" or "geometry3k".
        row_count: Number of rows.
        columns: Names of all columns; empty for item folders.
        rows: The first rows, read with the guessed columns.
        doubts: What was guessed among several possibilities, a sentence each.
    """

    source: LocalSource
    kind: str
    row_count: int
    columns: tuple[str, ...]
    rows: tuple[Row | BadRow, ...]
    doubts: tuple[str, ...]


def inspect_data(path: Path) -> Inspection:
    """Look at a file of rows or a folder, and guess its columns.

    Raises:
        ValueError: There is nothing readable, or no column looks like a question or an answer; names the columns.
    """
    source = LocalSource(type="local", path=str(path))
    reader = find_reader(source)
    if isinstance(reader, Geometry3kReader):
        return _describe(reader, source, kind="geometry3k", columns=(), doubts=[])
    names = tuple(sorted(reader.columns()))
    sample = [raw.values for raw in islice(reader.raw_rows(), _SHOWN_ROWS) if isinstance(raw.values, dict)]
    if not sample:
        raise ValueError(f"{path} holds no readable row")
    columns, doubts = _guess_columns(path, names, sample)
    source = source.model_copy(update={"columns": columns})
    kind = reader.files[0].suffix.removeprefix(".")
    return _describe(find_reader(source), source, kind=kind, columns=names, doubts=doubts)


def _describe(
    reader: TableReader | Geometry3kReader,
    source: LocalSource,
    *,
    kind: str,
    columns: tuple[str, ...],
    doubts: list[str],
) -> Inspection:
    return Inspection(
        source=source,
        kind=kind,
        row_count=len(reader),
        columns=columns,
        rows=tuple(islice(reader, _SHOWN_ROWS)),
        doubts=tuple(doubts),
    )


def _guess_columns(path: Path, names: Sequence[str], sample: Sequence[Values]) -> tuple[Columns, list[str]]:
    doubts: list[str] = []
    question = _guess("prompt_key", _QUESTION_NAMES, names, sample, _is_question, doubts)
    answer = _guess("answer_key", _ANSWER_NAMES, names, sample, _is_answer, doubts)
    missing = [role for role, name in (("question", question), ("answer", answer)) if name is None]
    if question is None or answer is None:
        raise ValueError(
            f"{path}: no column looks like the {' or the '.join(missing)}; its columns are {', '.join(names)}; name "
            "them under columns in a config of your own"
        )
    image = _guess("image_key", _IMAGE_NAMES, names, sample, _is_image, doubts)
    video = _guess("video_key", _VIDEO_NAMES, names, sample, _is_video, doubts)
    marked = any(IMAGE_PLACE in str(values.get(question)) for values in sample)
    if marked and image is None:
        doubts.append(f"questions have {IMAGE_PLACE}, and no column looks like images: set columns.image_key")
    images_first = image is not None and not marked
    if images_first:
        doubts.append(f"no question of the first rows has {IMAGE_PLACE}: images are put before it (images_first)")
    if video is not None and not any(VIDEO_PLACE in str(values.get(question)) for values in sample):
        images_first = True
        doubts.append(f"no question of the first rows has {VIDEO_PLACE}: videos are put before it (images_first)")
    columns = Columns(prompt_key=question, image_key=image, answer_key=answer, images_first=images_first)
    return columns if video is None else columns.model_copy(update={"video_key": video}), doubts


def _guess(
    key: str,
    known: Sequence[str],
    names: Sequence[str],
    sample: Sequence[Values],
    fits: Callable[[Any], bool],
    doubts: list[str],
) -> str | None:
    """The column of a usual name whose values fit. Others that fit as well are a doubt."""
    by_name = sorted((name for name in names if name.lower() in known), key=lambda name: known.index(name.lower()))
    found = [name for name in by_name if any(fits(values.get(name)) for values in sample)]
    if len(found) > 1:
        doubts.append(f"{key}: {found[0]!r} was chosen, {' and '.join(map(repr, found[1:]))} would fit too")
    return found[0] if found else None


def _is_question(value: Any) -> bool:
    try:
        question = read_conversation(value).question
    except ValueError:
        return False
    return bool(question.strip())


def _is_answer(value: Any) -> bool:
    try:
        read_answer(value)
    except ValueError:
        return False
    return True


def _is_video(value: Any) -> bool:
    """Paths that end like a video's; bytes alone do not tell."""
    items = value if isinstance(value, list | tuple) else [value]
    paths = [item.get("path") if isinstance(item, Mapping) else item for item in items]
    return bool(paths) and str(paths[0]).lower().endswith(_VIDEO_ENDINGS)


def _is_image(value: Any) -> bool:
    """Encoded bytes, a decoded image, or a path that ends like an image's."""
    items = value if isinstance(value, list | tuple) else [value]
    if not items:
        return False
    try:
        image = image_input(items[0], media_dir=Path("/"))
    except ValueError:
        return False
    return not isinstance(image, Path) or image.suffix.lower() in Image.registered_extensions()
