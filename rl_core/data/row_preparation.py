"""Turns a source's rows into prompts: images checked and fitted, chat rendered, length measured."""

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from typing import Literal

from rl_core.data.chat import ChatRenderer, ImageSize, RenderedPrompt
from rl_core.data.images import ImageStoreWriter, StoredImage, prepare_image
from rl_core.data.rows import BadRow, Row
from rl_core.types import Prompt

_CHUNK_ROWS = 64


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """Bounds of a prompt: tokens with image tokens included, and the area of an image in pixels."""

    max_prompt_length: int
    min_pixels: int
    max_pixels: int


@dataclass(frozen=True, kw_only=True, slots=True)
class PreparedRow:
    """A row that became a prompt, and its row number in the source."""

    index: int
    prompt: Prompt


@dataclass(frozen=True, kw_only=True, slots=True)
class RejectedRow:
    """A row that did not: unusable ("bad"), or longer than allowed ("overlong")."""

    kind: Literal["bad", "overlong"]
    row: BadRow


@dataclass(frozen=True, kw_only=True, slots=True)
class _LoadedRow:
    row: Row
    images: tuple[StoredImage, ...]

    @property
    def image_sizes(self) -> list[ImageSize]:
        return [(image.width, image.height) for image in self.images]


def prepare_rows(
    rows: Iterable[Row | BadRow], renderer: ChatRenderer, *, limits: Limits, images: ImageStoreWriter
) -> Iterator[PreparedRow | RejectedRow]:
    """Every row of `rows`, in order, as a prompt or as a rejection. Images of kept rows are added to `images`."""
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
    # Pillow works outside the interpreter's lock, so threads decode side by side.
    loaded = list(pool.map(lambda row: _load(row, renderer, limits), chunk))
    good = [item for item in loaded if isinstance(item, _LoadedRow)]
    rendered = iter(
        renderer.render_all(
            [item.row.question for item in good],
            [item.image_sizes for item in good],
            histories=[item.row.history for item in good],
        )
    )
    for item in loaded:
        if isinstance(item, BadRow):
            yield RejectedRow(kind="bad", row=item)
        else:
            yield _finish(item, next(rendered), limits=limits, images=images)


def _load(row: Row | BadRow, renderer: ChatRenderer, limits: Limits) -> _LoadedRow | BadRow:
    """Check and fit a row's images. What is wrong with them makes a BadRow."""
    if isinstance(row, BadRow):
        return row
    column = row.question_column
    try:
        for text in (row.question, *(turn.content for turn in row.history)):
            renderer.check_question(text)
        column = row.image_column
        images = tuple(
            prepare_image(image, min_pixels=limits.min_pixels, max_pixels=limits.max_pixels) for image in row.images
        )
        for image in images:
            renderer.image_tokens(image.width, image.height)
    except ValueError as error:
        return BadRow(index=row.index, column=column, reason=str(error), origin=row.origin)
    return _LoadedRow(row=row, images=images)


def _finish(
    item: _LoadedRow, rendered: RenderedPrompt, *, limits: Limits, images: ImageStoreWriter
) -> PreparedRow | RejectedRow:
    row, length = item.row, len(rendered.token_ids)
    if length > limits.max_prompt_length:
        reason = f"the prompt has {length} tokens, max_prompt_length is {limits.max_prompt_length}"
        bad = BadRow(index=row.index, column=row.question_column, reason=reason, origin=row.origin)
        return RejectedRow(kind="overlong", row=bad)
    image_uids = tuple(images.add(image.encoded) for image in item.images)
    prompt = Prompt(
        uid=_prompt_uid(row, image_uids),
        data_source=row.data_source,
        question=row.question,
        text=rendered.text,
        answer=row.answer,
        token_ids=rendered.token_ids,
        engine_token_ids=rendered.engine_token_ids,
        image_uids=image_uids,
        extra=row.extra,
    )
    return PreparedRow(index=row.index, prompt=prompt)


def _prompt_uid(row: Row, image_uids: Sequence[str]) -> str:
    """Content and place of a row: twice the same row in a source is two prompts with draws of their own."""
    identity = [row.data_source, row.index, row.history, row.question, row.answer, image_uids]
    return hashlib.sha256(json.dumps(identity, ensure_ascii=False).encode()).hexdigest()[:16]
