"""Prepares the data of a run once: from sources to Parquet rows and an image store, with a manifest."""

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, fields
from itertools import islice
from pathlib import Path
from typing import TextIO

import pyarrow.parquet as pq

from rl_core.config.data import DataConfig
from rl_core.data.chat import ChatRenderer
from rl_core.data.images import ImageStoreWriter
from rl_core.data.manifest import MANIFEST_FILE, DataManifest, preparation_fingerprint
from rl_core.data.prepared import IMAGES_FILE, REJECTED_FILE, SCHEMA, rows_file, rows_table
from rl_core.data.row_preparation import Limits, PreparedRow, RejectedRow, prepare_rows
from rl_core.data.split_counts import SplitCounts, split_problems
from rl_core.digests import folder_records
from rl_core.files import atomic_write_json, committed_folder
from rl_core.progress import Advance, Progress
from rl_core.sources.mixture import open_all
from rl_core.sources.rows import BadRow, Row, RowReader
from rl_core.sources.source import DataSource

_WRITTEN_ROWS = 256  # rows of one Parquet row group


def prepare_dataset(
    data: DataConfig,
    *,
    model_folder: Path,
    out: Path,
    progress: Progress,
    cold_start_source: DataSource | None = None,
) -> DataManifest:
    """Write the folder `out`, or replace it, whole or not at all: a Parquet file for each split, images.arrow,
    rejected.jsonl, manifest.json. Raises ValueError, which names all problems at once, where a source or template is
    wrong; too many rows cannot be used or, with `overlong: error`, are too long; no row is left; or training and
    held-out rows share an image."""
    renderer = ChatRenderer(
        model_folder,
        prompt_template=data.prompt_template,
        system_prompt=data.system_prompt,
        chat_template_kwargs=data.chat_template_kwargs,
    )
    with progress.wait("open the data"):
        sources = {"train": data.train, "validation": data.validation, "cold_start": cold_start_source}
        readers = open_all({name: source for name, source in sources.items() if source is not None})
    fingerprint = preparation_fingerprint(data, model_folder=model_folder, cold_start_source=cold_start_source)
    with committed_folder(out) as folder:
        splits, image_count = _write_splits(folder, readers, renderer, data=data, progress=progress)
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
    renderer: ChatRenderer,
    *,
    data: DataConfig,
    progress: Progress,
) -> tuple[list[SplitCounts], int]:
    limits = Limits(**{limit.name: getattr(data, limit.name) for limit in fields(Limits)})
    splits = []
    with (
        ImageStoreWriter(folder / IMAGES_FILE) as images,
        (folder / REJECTED_FILE).open("w", encoding="utf-8") as rejected,
    ):
        for name, reader in readers.items():
            rows = with_numbers(reader, data.curriculum.column) if data.curriculum and name == "train" else reader
            prepared = prepare_rows(rows, renderer, limits=limits, images=images)
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
