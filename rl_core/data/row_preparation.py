"""Turns rows into prompts: images are checked and scaled, the chat is rendered, its length is measured."""

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from typing import Literal, NamedTuple

from rl_core.config.data import DataConfig
from rl_core.data.chat import ChatRenderer, Media, RenderedPrompt
from rl_core.data.images import ImageStoreWriter
from rl_core.data.pixels import StoredImage, prepare_image
from rl_core.data.videos import read_video
from rl_core.families.vision import VideoShape
from rl_core.image_sizes import ImageSizes
from rl_core.progress import Progress
from rl_core.sources.conversation import IMAGE_PLACE
from rl_core.sources.rows import BadRow, Row, Turn, VideoInput
from rl_core.sources.source import DataSource
from rl_core.types import Prompt, VideoClip

_CHUNK_ROWS = 64
_NAMED_ROWS = 5
_LETTERS_PER_TOKEN = 100  # more than any tokenizer reaches on any text
_CALL = "<tool_call>"  # what a call of a tool begins with in a row's turns


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """Limits of a prompt: tokens, the area of an image or frame in pixels, and the frames of a video; the area of the
    sources of images, None where they are not kept; and the area of images in the results of a tool, None where it is
    that of all images."""

    max_prompt_length: int
    min_pixels: int
    max_pixels: int
    max_source_pixels: int | None = None
    max_result_pixels: int | None = None
    video_fps: float = DataConfig.model_fields["video_fps"].default
    video_max_frames: int = DataConfig.model_fields["video_max_frames"].default


class StoredVideo(NamedTuple):
    """The frames of a video, ready to be stored, and their number in each second."""

    frames: tuple[StoredImage, ...]
    fps: float

    @property
    def shape(self) -> VideoShape:
        """The sizes that the video's tokens depend on."""
        return VideoShape(len(self.frames), self.frames[0].width, self.frames[0].height, self.fps)


@dataclass(frozen=True, kw_only=True, slots=True)
class PreparedRow:
    """A row that became a prompt, with its number in the source, and what it asks, in all turns, before the chat
    template."""

    index: int
    prompt: Prompt
    asked: str


@dataclass(frozen=True, kw_only=True, slots=True)
class RejectedRow:
    """A row that became no prompt: it cannot be used ("bad"), or is longer than allowed ("overlong")."""

    kind: Literal["bad", "overlong"]
    row: BadRow


@dataclass(frozen=True, kw_only=True, slots=True)
class _LoadedRow:
    row: Row
    images: tuple[StoredImage, ...]
    sizes: tuple[ImageSizes, ...]
    videos: tuple[StoredVideo, ...]

    @property
    def media(self) -> Media:
        sizes = [(image.width, image.height) for image in self.images]
        return Media(sizes, [video.shape for video in self.videos])


def prepare_rows(
    rows: Iterable[Row | BadRow], renderer: ChatRenderer, *, limits: Limits, images: ImageStoreWriter
) -> Iterator[PreparedRow | RejectedRow]:
    """Every row in order, as a prompt or as a rejected row. The images of rows that are kept are added to `images`."""
    remaining = iter(rows)
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        while chunk := list(islice(remaining, _CHUNK_ROWS)):
            yield from _prepare_chunk(chunk, renderer, limits=limits, images=images, pool=pool)


def _prepare_chunk(
    chunk: Sequence[Row | BadRow],
    renderer: ChatRenderer,
    *,
    limits: Limits,
    images: ImageStoreWriter,
    pool: Executor,
) -> Iterator[PreparedRow | RejectedRow]:
    # Pillow releases the interpreter's lock, so threads decode in parallel.
    loaded = list(pool.map(lambda row: _load(row, renderer, limits), chunk))
    good = [item for item in loaded if isinstance(item, _LoadedRow)]
    rendered = iter(_render_rows(good, renderer))
    for item in loaded:
        if isinstance(item, RejectedRow):
            yield item
        else:
            yield _finish(item, next(rendered), renderer, limits=limits, images=images)


def _render_rows(items: Sequence[_LoadedRow], renderer: ChatRenderer) -> Sequence[RenderedPrompt | BadRow]:
    rows = [item.row for item in items]
    try:
        return renderer.render_all(
            [row.question for row in rows],
            [item.media for item in items],
            histories=[row.history for row in rows],
            values=[row.template_values for row in rows],
            asks=[row.asks for row in rows],
        )
    except ValueError as error:
        if len(rows) == 1:
            return [rows[0].as_bad(rows[0].question_column, str(error))]
        return [_render_rows([item], renderer)[0] for item in items]


def _load(row: Row | BadRow, renderer: ChatRenderer, limits: Limits) -> _LoadedRow | RejectedRow:
    if isinstance(row, BadRow):
        return RejectedRow(kind="bad", row=row)
    if (length := _hopeless_length(row, limits)) is not None:
        return _overlong(row, length, limits)
    column = row.answer_column
    try:
        # No response could equal it, because responses are decoded without these tokens, and a cold start trains it.
        renderer.tokens.check_text(row.answer_text, name="the answer")
        column = row.image_column
        results = _images_of_results(row)
        images = tuple(
            prepare_image(
                image,
                min_pixels=min(limits.min_pixels, largest),
                max_pixels=largest,
                max_source_pixels=limits.max_source_pixels,
            )
            for place, image in enumerate(row.images)
            for largest in [(limits.max_result_pixels if place in results else None) or limits.max_pixels]
        )
        sizes = tuple(
            ImageSizes(image.original, renderer.vision.shown_size(image.width, image.height)) for image in images
        )
        column = row.video_column
        videos = tuple(_prepare_video(video, limits) for video in row.videos)
        for video in videos:
            renderer.vision.of_video(video.shape)
    except ValueError as error:
        return RejectedRow(kind="bad", row=row.as_bad(column, str(error)))
    return _LoadedRow(row=row, images=images, sizes=sizes, videos=videos)


def _images_of_results(row: Row) -> set[int]:
    """Which of the row's images a tool has shown: those of its turns, and of a user's turn after calls
    (`tools.result_role: user`)."""
    turns = (*row.history, Turn(row.asks, row.question))
    calls = [False, *(turn.role == "assistant" and _CALL in turn.content for turn in turns)]
    are_results = [
        turn.role == "tool" or (turn.role == "user" and follows_calls)
        for turn, follows_calls in zip(turns, calls, strict=False)
        for _ in range(turn.content.count(IMAGE_PLACE))
    ]
    return {place for place, is_result in enumerate(are_results) if is_result}


def _hopeless_length(row: Row, limits: Limits) -> str | None:
    """What makes a row longer than any prompt may be, without counting its tokens: megabytes of text or thousands of
    images would take minutes to prepare."""
    letters = len(row.question) + sum(len(turn.content) for turn in row.history)
    if letters > _LETTERS_PER_TOKEN * limits.max_prompt_length:
        return f"{letters} letters"
    shown = len(row.images) + len(row.videos)
    return f"{shown} images and videos" if shown > limits.max_prompt_length else None


def _overlong(row: Row, length: str, limits: Limits) -> RejectedRow:
    reason = f"the prompt has {length}, max_prompt_length is {limits.max_prompt_length}"
    return RejectedRow(kind="overlong", row=row.as_bad(row.question_column, reason))


def _prepare_video(source: VideoInput, limits: Limits) -> StoredVideo:
    frames = read_video(source, fps=limits.video_fps, max_frames=limits.video_max_frames)
    stored = [
        prepare_image(image, min_pixels=limits.min_pixels, max_pixels=limits.max_pixels) for image in frames.images
    ]
    return StoredVideo(tuple(stored), frames.fps)


def _finish(
    item: _LoadedRow,
    rendered: RenderedPrompt | BadRow,
    renderer: ChatRenderer,
    *,
    limits: Limits,
    images: ImageStoreWriter,
) -> PreparedRow | RejectedRow:
    if isinstance(rendered, BadRow):
        return RejectedRow(kind="bad", row=rendered)
    row, length = item.row, len(rendered.token_ids)
    if length > limits.max_prompt_length:
        return _overlong(row, f"{length} tokens", limits)
    image_uids = tuple(images.add(image.encoded, source=image.source) for image in item.images)
    videos = tuple(
        VideoClip(frame_uids=tuple(images.add(frame.encoded) for frame in video.frames), fps=video.fps)
        for video in item.videos
    )
    prompt = Prompt(
        uid=_prompt_uid(row, image_uids, videos),
        data_source=row.data_source,
        question=row.question,
        text=rendered.text,
        answer=row.answer,
        token_ids=rendered.token_ids,
        engine_token_ids=rendered.engine_token_ids,
        image_uids=image_uids,
        image_sizes=item.sizes,
        videos=videos,
        extra=row.extra,
    )
    turns = renderer.turns(row.question, row.history, row.template_values, row.asks)
    asked = "\n".join(f"{turn.role}: {turn.content}" for turn in turns)
    return PreparedRow(index=row.index, prompt=prompt, asked=asked)


def _prompt_uid(row: Row, image_uids: Sequence[str], videos: Sequence[VideoClip]) -> str:
    """Identity of a row by its content and its place: a row that a source has twice is two prompts, each with its own
    random draws."""
    identity = [row.data_source, row.index, row.history, row.question, row.answer_text, image_uids]
    identity += [video.frame_uids for video in videos]
    return hashlib.sha256(json.dumps(identity, ensure_ascii=False).encode()).hexdigest()[:16]


@dataclass(frozen=True, kw_only=True, slots=True)
class RenderedItems:
    """The items of a source as prompts, and those that cannot be asked."""

    prompts: Sequence[Prompt]
    left_out: Sequence[RejectedRow]

    def remark(self) -> str | None:
        """A sentence about the items that were left out and why; None if there are none."""
        if not self.left_out:
            return None
        first = "; ".join(str(row.row) for row in self.left_out[:_NAMED_ROWS])
        more = "" if len(self.left_out) <= _NAMED_ROWS else "; ..."
        return f"left out: {len(self.left_out)} item(s) that could not be asked ({first}{more})"


def render_items(
    source: DataSource, renderer: ChatRenderer, *, limits: Limits, images: ImageStoreWriter, progress: Progress
) -> RenderedItems:
    """Render every item of a source. Raises ValueError where it cannot be read, or none of its items can be asked."""
    reader = source.open()
    prompts: list[Prompt] = []
    left_out: list[RejectedRow] = []
    with progress.bar(f"prepare {reader.name}", reader.row_count) as advance:
        for row in prepare_rows(reader, renderer, limits=limits, images=images):
            if isinstance(row, PreparedRow):
                prompts.append(row.prompt)
            else:
                left_out.append(row)
            advance()
    rendered = RenderedItems(prompts=prompts, left_out=left_out)
    if not prompts:
        raise ValueError(f"no item of {reader.name} can be asked; {rendered.remark() or 'it is empty'}")
    return rendered
