"""A graded response to a held-out prompt, and files of such items."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from rl_core.files import atomic_write_bytes
from rl_core.types import FinishReason, Prompt, Score
from rl_core.unscored import NOT_FOR_SAMPLE

Mode = Literal["greedy", "sampled"]

RIGHT_COLUMN = "verdict"
"""Column of `EvaluationItem.is_right`; also its name in MLflow's table of items."""

SCHEMA = pa.schema(
    [
        ("uid", pa.string()),
        ("data_source", pa.string()),
        ("image_uids", pa.list_(pa.string())),
        ("question", pa.string()),
        ("prompt", pa.string()),
        ("answer", pa.string()),
        ("response", pa.string()),
        ("parsed", pa.string()),
        ("parse_failed", pa.bool_()),
        (RIGHT_COLUMN, pa.bool_()),
        ("components", pa.map_(pa.string(), pa.float64())),
        ("length", pa.int32()),
        ("finish_reason", pa.string()),
        ("mode", pa.string()),
        ("sample_index", pa.int32()),
        ("error", pa.string()),
        ("categories", pa.map_(pa.string(), pa.list_(pa.string()))),
        ("turns", pa.string()),
    ]
)


@dataclass(frozen=True, kw_only=True, slots=True)
class EvaluationItem:
    """One graded response to a held-out prompt.

    Attributes:
        image_uids: The uids of the images, then those of the frames of videos.
        question, prompt: The user's text, and the rendered chat prompt.
        parse_failed: Whether the reward looked for an answer and found none; None where it has no `parse` or failed.
        is_right: None for a response without a score.
        length, finish_reason: None for a saved response, of which only the text is known.
        error: Why there is no score; None where there is one.
        categories: The item's values in the columns of `evaluation.categories`.
        turns: Of a response with tools, all turns, as a reward gets them; a JSON text in the file.
    """

    uid: str
    data_source: str
    image_uids: tuple[str, ...]
    question: str
    prompt: str
    answer: str
    response: str
    parsed: str | None
    parse_failed: bool | None
    is_right: bool | None
    components: Mapping[str, float]
    length: int | None
    finish_reason: FinishReason | None
    mode: Mode
    sample_index: int
    error: str | None
    categories: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    turns: tuple[Mapping[str, Any], ...] = ()

    @property
    def has_failed(self) -> bool:
        """Whether it has no score because the reward failed."""
        return self.error not in (None, NOT_FOR_SAMPLE)

    @property
    def grade(self) -> str:
        """ "right", "wrong" or "not scored"."""
        return "not scored" if self.is_right is None else "right" if self.is_right else "wrong"


def graded_item(
    prompt: Prompt,
    response: str,
    score: Score,
    *,
    mode: Mode,
    sample_index: int,
    accuracy_key: str,
    categories: Sequence[str],
    has_parser: bool,
    length: int | None = None,
    finish_reason: FinishReason | None = None,
    turns: Iterable[Mapping[str, Any]] = (),
) -> EvaluationItem:
    """The item of a response. Raises ValueError when the score lacks the component `accuracy_key`, unless parts of the
    reward are not for this response."""
    is_skipped = score.error is None and bool(score.skipped) and accuracy_key not in score.components
    error = NOT_FOR_SAMPLE if is_skipped else score.error
    return EvaluationItem(
        uid=prompt.uid,
        data_source=prompt.data_source,
        image_uids=prompt.shown_uids,
        question=prompt.question,
        prompt=prompt.text,
        answer=prompt.answer_text,
        response=response,
        parsed=score.parsed,
        parse_failed=score.parsed is None if has_parser and error is None else None,
        is_right=None if error is not None else _is_right(score, accuracy_key),
        components=score.components,
        length=length,
        finish_reason=finish_reason,
        mode=mode,
        sample_index=sample_index,
        error=error,
        categories=_categories_of(prompt.extra, categories),
        turns=tuple(turns),
    )


def _categories_of(extra: Mapping[str, Any], columns: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """[column] -> the row's values, for the columns that the row has; a list gives several values."""
    found = {column: extra[column] for column in columns if extra.get(column) is not None}
    return {
        column: tuple(map(str, value)) if isinstance(value, list) else (str(value),) for column, value in found.items()
    }


def _is_right(score: Score, accuracy_key: str) -> bool:
    """A component of 0.5 or more means right: some scorers give 0 for a wrong response, others -1."""
    if accuracy_key not in score.components:
        known = ", ".join(sorted(score.components))
        raise ValueError(f"evaluation.accuracy_key {accuracy_key!r} is not a component of the reward; it has {known}")
    return score.components[accuracy_key] >= 0.5


def write_items(path: Path, items: Sequence[EvaluationItem]) -> None:
    """Write items as a Parquet file with SCHEMA, whole or not at all; equal items give equal bytes."""
    sink = pa.BufferOutputStream()
    has_turns = any(item.turns for item in items)  # without tools there is no column for them
    schema = SCHEMA if has_turns else SCHEMA.remove(SCHEMA.get_field_index("turns"))
    pq.write_table(pa.Table.from_pylist([_record(item) for item in items], schema=schema), sink, compression="zstd")
    atomic_write_bytes(path, sink.getvalue().to_pybytes())


def read_items(path: Path) -> list[EvaluationItem]:
    """Read what `write_items` wrote. Raises FileNotFoundError."""
    return [_item(record) for record in pq.read_table(path, schema=SCHEMA).to_pylist()]


def _record(item: EvaluationItem) -> dict[str, Any]:
    return asdict(item) | {
        RIGHT_COLUMN: item.is_right,
        "components": sorted(item.components.items()),
        "categories": sorted(item.categories.items()),
        "turns": json.dumps(item.turns, ensure_ascii=False) if item.turns else None,
    }


def _item(record: dict[str, Any]) -> EvaluationItem:
    values = {
        "is_right": record.pop(RIGHT_COLUMN),
        "components": dict(record["components"]),
        "image_uids": tuple(record["image_uids"]),
        "categories": {column: tuple(values) for column, values in record["categories"]},
        "turns": tuple(json.loads(record["turns"] or "[]")),
    }
    return EvaluationItem(**(record | values))
