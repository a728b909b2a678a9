"""Prepares the data of a run once: from sources to Parquet rows and an image store, with a manifest."""

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from itertools import islice
from pathlib import Path
from typing import Any, TextIO

import pyarrow.parquet as pq

from rl_core.config.data import DataConfig
from rl_core.data.chat import ChatRenderer
from rl_core.data.images import ImageStoreWriter
from rl_core.data.manifest import MANIFEST_FILE, DataManifest, LengthSummary, SplitSummary, preparation_fingerprint
from rl_core.data.ordering import check_source_weights
from rl_core.data.prepared import IMAGES_FILE, REJECTED_FILE, SCHEMA, rows_file, rows_table
from rl_core.data.row_preparation import Limits, PreparedRow, RejectedRow, prepare_rows
from rl_core.digests import folder_records
from rl_core.files import atomic_write_json, committed_folder
from rl_core.progress import Advance, Progress
from rl_core.sources.mixture import open_all
from rl_core.sources.rows import BadRow, Row, RowReader
from rl_core.sources.source import DataSource

_WRITTEN_ROWS = 256  # rows of one Parquet row group
_NAMED_PROBLEMS = 10


@dataclass(kw_only=True, slots=True)
class SplitCounts:
    """The counts of a split, which grow row by row."""

    name: str
    source: str
    lengths: list[int] = field(default_factory=list)
    bad: list[BadRow] = field(default_factory=list)
    overlong: list[BadRow] = field(default_factory=list)
    image_rows: dict[str, int] = field(default_factory=dict)  # image uid -> the first row with this image
    text_rows: dict[str, int] = field(default_factory=dict)  # what a prompt of text asks -> the first row that asks it
    data_sources: Counter[str] = field(default_factory=Counter)

    @property
    def read(self) -> int:
        """Number of rows that were read."""
        return len(self.lengths) + len(self.bad) + len(self.overlong)

    def keep(self, item: PreparedRow) -> None:
        """Count a row that is kept."""
        prompt = item.prompt
        self.lengths.append(len(prompt.token_ids))
        self.data_sources[prompt.data_source] += 1
        for uid in prompt.shown_uids:
            self.image_rows.setdefault(uid, item.index)
        if not prompt.shown_uids:
            self.text_rows.setdefault(repr(item.asked), item.index)

    def summary(self) -> SplitSummary:
        """The summary of the split for the manifest."""
        return SplitSummary(
            source=self.source,
            read=self.read,
            rows=len(self.lengths),
            rejected=len(self.bad),
            overlong=len(self.overlong),
            images=len(self.image_rows),
            data_sources=dict(self.data_sources),
            prompt_tokens=LengthSummary.of(self.lengths),
        )


def split_problems(splits: Sequence[SplitCounts], data: DataConfig) -> list[str]:
    """Everything that stops the preparation: a sentence for each problem, with the first of its rows below."""
    problems = [problem for split in splits for problem in _row_problems(split, data)]
    by_name = {split.name: split for split in splits}
    if data.source_weights is not None:
        try:
            check_source_weights(data.source_weights, list(by_name["train"].data_sources))
        except ValueError as error:
            problems.append(f"train: {error}")
    held_out = by_name.pop("validation")
    for split in by_name.values():
        problems += _shared("image", split, split.image_rows, held_out.image_rows)
        problems += _shared("prompt", split, split.text_rows, held_out.text_rows)
    return problems


def _row_problems(split: SplitCounts, data: DataConfig) -> Iterator[str]:
    bad_share = len(split.bad) / split.read if split.read else 0.0
    too_many_are_bad = bad_share > data.max_bad_share
    overlong_are_refused = bool(split.overlong) and data.overlong == "error"
    if too_many_are_bad:
        yield (
            f"{split.name}: {len(split.bad)} of {split.read} rows are unusable, more than data.max_bad_share "
            f"{data.max_bad_share:g} allows"
        )
        yield from _named(split.bad)
    if overlong_are_refused:
        yield (
            f"{split.name}: {len(split.overlong)} of {split.read} prompts are too long; raise "
            "data.max_prompt_length, lower data.max_pixels, or set data.overlong to filter"
        )
        yield from _named(split.overlong)
    if not split.lengths:
        yield f"{split.name}: no row is left of {split.read}"
        # Rows that were refused above are not named again.
        if not too_many_are_bad:
            yield from _named(split.bad)
        if not overlong_are_refused:
            yield from _named(split.overlong)


def _named(rows: Sequence[object]) -> Iterator[str]:
    for row in rows[:_NAMED_PROBLEMS]:
        yield f"  {row}"
    if len(rows) > _NAMED_PROBLEMS:
        yield f"  and {len(rows) - _NAMED_PROBLEMS} more"


def _shared(what: str, split: SplitCounts, rows: Mapping[str, int], held_out_rows: Mapping[str, int]) -> Iterator[str]:
    shared = [content for content in held_out_rows if content in rows]
    if shared:
        yield f"{split.name} and validation share {len(shared)} {what}(s); held-out rows must be unseen"
    yield from _named(
        [
            f"{what} {content}: {split.name} row {rows[content]}, validation row {held_out_rows[content]}"
            for content in shared
        ]
    )


def prepare_dataset(
    data: DataConfig,
    *,
    model_folder: Path,
    out: Path,
    progress: Progress,
    cold_start_source: DataSource | None = None,
    tools: Sequence[Mapping[str, Any]] = (),
    held_out_tools: Sequence[Mapping[str, Any]] = (),
    max_result_pixels: int | None = None,
) -> DataManifest:
    """Write the folder `out`, or replace it, whole or not at all: a Parquet file for each split, images.arrow,
    rejected.jsonl, manifest.json. The prompts show the schemas of the `tools`, those of held-out rows of the
    `held_out_tools`; the images of their results have at most the area `max_result_pixels`, in pixels, where it is not
    that of all images. Raises ValueError, which names all problems at once, where a source or template is wrong; too
    many rows cannot be used or, with `overlong: error`, are too long; no row is left; or training and held-out rows
    share an image or a prompt of text."""

    def renderer(shown: Sequence[Mapping[str, Any]]) -> ChatRenderer:
        return ChatRenderer(
            model_folder,
            prompt_template=data.prompt_template,
            system_prompt=data.system_prompt,
            chat_template_kwargs=data.chat_template_kwargs,
            tools=shown,
        )

    trained = renderer(tools)
    held_out = trained if held_out_tools == tools else renderer(held_out_tools)
    renderers = {"train": trained, "validation": held_out, "cold_start": trained}
    with progress.wait("open the data"):
        sources = {"train": data.train, "validation": data.validation, "cold_start": cold_start_source}
        readers = open_all({name: source for name, source in sources.items() if source is not None})
    fingerprint = preparation_fingerprint(
        data,
        model_folder=model_folder,
        cold_start_source=cold_start_source,
        tools=tools,
        held_out_tools=held_out_tools,
        max_result_pixels=max_result_pixels,
    )
    of_data = {limit.name: getattr(data, limit.name) for limit in fields(Limits) if hasattr(data, limit.name)}
    limits = Limits(**of_data, max_result_pixels=max_result_pixels)
    with committed_folder(out) as folder:
        splits, image_count = _write_splits(folder, readers, renderers, data=data, limits=limits, progress=progress)
        if problems := split_problems(splits, data):
            raise ValueError("\n".join(["the data cannot be used as it is:", *problems]))
        manifest = DataManifest(
            fingerprint=fingerprint,
            splits={split.name: split.summary() for split in splits},
            images=image_count,
            files=folder_records(folder),
        )
        atomic_write_json(folder / MANIFEST_FILE, manifest.model_dump(mode="json"))
    return manifest


def _write_splits(
    folder: Path,
    readers: Mapping[str, RowReader],
    renderers: Mapping[str, ChatRenderer],
    *,
    data: DataConfig,
    limits: Limits,
    progress: Progress,
) -> tuple[list[SplitCounts], int]:
    splits = []
    with (
        ImageStoreWriter(folder / IMAGES_FILE) as images,
        (folder / REJECTED_FILE).open("w", encoding="utf-8") as rejected,
    ):
        for name, reader in readers.items():
            rows = with_numbers(reader, data.curriculum.column) if data.curriculum and name == "train" else reader
            prepared = prepare_rows(rows, renderers[name], limits=limits, images=images)
            split = SplitCounts(name=name, source=reader.name)
            with progress.bar(f"Preparing {name.replace('_', ' ')} rows", reader.row_count) as advance:
                _write_rows(folder / rows_file(name), _sort_out(prepared, split, rejected, advance))
            splits.append(split)
        return splits, len(images)


def with_numbers(rows: Iterable[Row | BadRow], column: str) -> Iterator[Row | BadRow]:
    """The rows of a curriculum: a row without a finite number in `column` becomes a BadRow."""
    for row in rows:
        if isinstance(row, Row) and not _is_number(row.extra.get(column)):
            found = f"{row.extra[column]!r}" if column in row.extra else "no such column"
            yield row.as_bad(column, f"data.curriculum needs a number here and finds {found}")
        else:
            yield row


def _is_number(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return math.isfinite(float(value))
    except OverflowError:  # a whole number too large for a float
        return False


def _sort_out(
    prepared: Iterator[PreparedRow | RejectedRow], split: SplitCounts, rejected: TextIO, advance: Advance
) -> Iterator[PreparedRow]:
    """The rows to keep; the others are counted in `split` and written to the file of rejected rows."""
    for item in prepared:
        advance()
        if isinstance(item, RejectedRow):
            (split.bad if item.kind == "bad" else split.overlong).append(item.row)
            record = {"split": split.name, "source": split.source, "kind": item.kind, **asdict(item.row)}
            rejected.write(json.dumps(record, ensure_ascii=False) + "\n")
        else:
            split.keep(item)
            yield item


def _write_rows(path: Path, rows: Iterator[PreparedRow]) -> None:
    with pq.ParquetWriter(path, SCHEMA, compression="zstd") as writer:
        while group := list(islice(rows, _WRITTEN_ROWS)):
            writer.write_table(rows_table(group))
