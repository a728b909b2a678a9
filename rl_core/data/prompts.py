"""The text around a question: the Jinja prompt template, and its division into parts at images and videos."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from rl_core.config.data import DataConfig
from rl_core.files import read_utf8
from rl_core.sources.conversation import IMAGE_PLACE, VIDEO_PLACE, without_places
from rl_core.sources.rows import Row
from rl_core.templates import TextTemplate

_CORPUS_ROWS = 2000
_CORPUS_LETTERS = 4_000
_SAMPLE = f"first {IMAGE_PLACE} second"

_KINDS = {IMAGE_PLACE: {"type": "image"}, VIDEO_PLACE: {"type": "video"}}
_PLACE = re.compile(f"({IMAGE_PLACE}|{VIDEO_PLACE})")

Part = dict[str, str]
Content = str | list[Part]


@dataclass(frozen=True, slots=True)
class PromptTemplate:
    """A Jinja template that is wrapped around a question. Its variables are `content`, the question, and the further
    columns of its row. Raises ValueError where it is no Jinja, or, without columns, does not show `content` exactly
    once."""

    source: str = "{{ content }}"
    _template: TextTemplate = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        template = TextTemplate(self.source.strip(), name="the prompt template", variables=None)
        object.__setattr__(self, "_template", template)
        if "content" not in template.used:
            raise ValueError("the prompt template does not show the question: write {{ content }} where it belongs")
        if self.columns:  # only a row shows what becomes of it
            return
        sample = self.render(_SAMPLE)
        if sample.count(_SAMPLE) != 1 or sample.count(IMAGE_PLACE) != 1:
            raise ValueError("the prompt template must show `content` once, unchanged, and add no <image>")

    @classmethod
    def load(cls, path: str | None) -> "PromptTemplate":
        """The template in a file; None for the question alone. Raises ValueError where it is no such template."""
        if path is None:
            return cls()
        try:
            return cls(read_utf8(Path(path)))
        except OSError as error:
            raise ValueError(f"data.prompt_template {path} cannot be read: {error.strerror}") from None
        except ValueError as error:
            raise ValueError(f"data.prompt_template {path}: {error}") from None

    @property
    def columns(self) -> frozenset[str]:
        """The columns that it shows besides the question; `options` are those of a multiple choice, `row` is a mapping
        of all columns."""
        return self._template.used - {"content"}

    def render(self, question: str, values: Mapping[str, Any] | None = None) -> str:
        """The text of the user's turn, of a row with these further columns. Raises ValueError where it cannot be
        rendered, or a column is missing."""
        values = values or {}
        return self._template.render(**{"row": values, **values, "content": question}).strip()


def chat_content(text: str) -> Content:
    """The content of a chat message: a list of parts where the text has places of images or videos."""
    pieces = _PLACE.split(text)
    if len(pieces) == 1:
        return text
    return [_KINDS.get(piece) or {"type": "text", "text": piece} for piece in pieces if piece]


def corpus(data: DataConfig, extra_texts: Iterable[str] = ()) -> Iterator[str]:
    """Texts that a tokenizer can be trained on: turns, wrapped questions and answers of the first training rows, the
    system prompt, and `extra_texts`."""
    template = PromptTemplate.load(data.prompt_template)
    if data.system_prompt:
        yield data.system_prompt
    for row in islice(data.train.open(), _CORPUS_ROWS):
        if isinstance(row, Row):
            # A text of megabytes would dominate the vocabulary, and take minutes to train on.
            for turn in row.history:
                yield without_places(turn.content)[:_CORPUS_LETTERS]
            yield without_places(template.render(row.question[:_CORPUS_LETTERS], row.template_values))
            yield row.answer_text[:_CORPUS_LETTERS]
    yield from extra_texts
