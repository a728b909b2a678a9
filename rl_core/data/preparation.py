"""Prepares a dataset once for a run: sources to Parquet rows and an image store, with a manifest."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import TextIO

import pyarrow.parquet as pq

from rl_core.config.data import DataConfig, Source
from rl_core.data.chat import ChatRenderer
from rl_core.data.fingerprint import preparation_fingerprint, source_fingerprint
from rl_core.data.images import ImageStoreWriter
from rl_core.data.manifest import MANIFEST_FILE, DataManifest, LengthSummary, SplitSummary
from rl_core.data.prepared import IMAGES_FILE, REJECTED_FILE, SCHEMA, rows_file, rows_table
from rl_core.data.prompts import corpus
from rl_core.data.row_preparation import Limits, PreparedRow, RejectedRow, prepare_rows
from rl_core.data.rows import RowReader
from rl_core.data.sources import open_source
from rl_core.files import atomic_write_json, committed_folder, folder_hashes
from rl_core.progress import Advance, Progress

__all__ = ["DataManifest", "corpus", "prepare_dataset", "source_fingerprint"]

_NAMED_PROBLEMS = 10
_WRITTEN_ROWS = 256  # rows of one Parquet row group


@dataclass(kw_only=True, slots=True)
class _Split:
    """What is known of a split while its rows come in."""

    name: str
    source: str
    lengths: list[int] = field(default_factory=list)
    bad: list[RejectedRow] = field(default_factory=list)
    overlong: list[RejectedRow] = field(default_factory=list)
    image_rows: dict[str, int] = field(default_factory=dict)  # image uid -> the first row that shows it

    @property
    def read(self) -> int:
        return len(self.lengths) + len(self.bad) + len(self.overlong)

    def summary(self) -> SplitSummary:
        return SplitSummary(
            source=self.source,
            read=self.read,
            rows=len(self.lengths),
            rejected=len(self.bad),
            overlong=len(self.overlong),
            images=len(self.image_rows),
            prompt_tokens=LengthSummary.of(self.lengths),
        )


def prepare_dataset(
    data: DataConfig,
    *,
    model_folder: Path,
    out: Path,
    progress: Progress,
    trust_remote_code: bool = False,
    cold_start_source: Source | None = None,
) -> DataManifest:
    """Write the folder `out`, whole or not at all: train.parquet, validation.parquet, cold_start.parquet when that
    source is given, images.arrow, rejected.jsonl, manifest.json.

    Args:
        data: Sources, template and limits.
        model_folder: Hugging Face folder whose tokenizer, chat template and processor are used.
        out: Folder to make; an existing one is replaced.
        progress: Shows a bar a split.
        trust_remote_code: Allow the model folder to run its own Python code.
        cold_start_source: Rows to imitate before RL.

    Raises:
        ValueError: A source or template is wrong; too many rows are unusable or, with `overlong: error`, too long;
            nothing is left; or training and held-out rows share an image. All such problems are named at once.
    """
    renderer = ChatRenderer(
        model_folder,
        prompt_template=data.prompt_template,
        system_prompt=data.system_prompt,
        trust_remote_code=trust_remote_code,
    )
    readers = _open_all(data, cold_start_source)
    fingerprint = preparation_fingerprint(data, model_folder=model_folder, cold_start_source=cold_start_source)
    with committed_folder(out) as folder:
        splits, image_count = _write_splits(folder, readers, renderer, data=data, progress=progress)
        if problems := _problems(splits, data):
            raise ValueError("\n".join(["the data cannot be used as it is:", *problems]))
        manifest = DataManifest(
            fingerprint=fingerprint,
            splits={split.name: split.summary() for split in splits},
            images=image_count,
            files=folder_hashes(folder),
        )
        atomic_write_json(folder / MANIFEST_FILE, manifest.as_json())
    return manifest


def _open_all(data: DataConfig, cold_start_source: Source | None) -> dict[str, RowReader]:
    """Readers by split. Raises ValueError with the problems of every source."""
    sources = {"train": data.train, "validation": data.validation, "cold_start": cold_start_source}
    readers, problems = {}, []
    for name, source in sources.items():
        if source is None:
            continue
        try:
            readers[name] = open_source(source)
        except ValueError as error:
            problems.append(f"{name}: {error}")
    if problems:
        raise ValueError("\n".join(problems))
    return readers


def _write_splits(
    folder: Path,
    readers: Mapping[str, RowReader],
    renderer: ChatRenderer,
    *,
    data: DataConfig,
    progress: Progress,
) -> tuple[list[_Split], int]:
    """Write every split's files. Returns what was found, and the number of different images."""
    limits = Limits(max_prompt_length=data.max_prompt_length, min_pixels=data.min_pixels, max_pixels=data.max_pixels)
    splits = []
    with (
        ImageStoreWriter(folder / IMAGES_FILE) as images,
        (folder / REJECTED_FILE).open("w", encoding="utf-8") as rejected,
    ):
        for name, reader in readers.items():
            prepared = prepare_rows(reader, renderer, limits=limits, images=images)
            split = _Split(name=name, source=reader.name)
            with progress.bar(f"Preparing {name.replace('_', ' ')} rows", len(reader)) as advance:
                counted = _counting(prepared, advance)
                _write_rows(folder / rows_file(name), _sort_out(counted, split, rejected))
            splits.append(split)
        return splits, len(images)


def _counting(prepared: Iterator[PreparedRow | RejectedRow], advance: Advance) -> Iterator[PreparedRow | RejectedRow]:
    for item in prepared:
        advance()
        yield item


def _sort_out(prepared: Iterator[PreparedRow | RejectedRow], split: _Split, rejected: TextIO) -> Iterator[PreparedRow]:
    """Pass on the rows to keep; note the others in `split` and in the file of rejected rows."""
    for item in prepared:
        if isinstance(item, RejectedRow):
            (split.bad if item.kind == "bad" else split.overlong).append(item)
            record = {"split": split.name, "source": split.source, "kind": item.kind, **asdict(item.row)}
            rejected.write(json.dumps(record, ensure_ascii=False) + "\n")
        else:
            split.lengths.append(len(item.prompt.token_ids))
            for uid in item.prompt.image_uids:
                split.image_rows.setdefault(uid, item.index)
            yield item


def _write_rows(path: Path, rows: Iterator[PreparedRow]) -> None:
    with pq.ParquetWriter(path, SCHEMA, compression="zstd") as writer:
        while group := list(islice(rows, _WRITTEN_ROWS)):
            writer.write_table(rows_table(group))


def _problems(splits: list[_Split], data: DataConfig) -> list[str]:
    """Everything that stops the preparation, a sentence each, the first rows concerned below it."""
    problems = [problem for split in splits for problem in _row_problems(split, data)]
    held_out = next(split for split in splits if split.name == "validation")
    for split in splits:
        if split is not held_out:
            problems += _leaks(split, held_out)
    return problems


def _row_problems(split: _Split, data: DataConfig) -> Iterator[str]:
    bad_share = len(split.bad) / split.read if split.read else 0.0
    if bad_share > data.max_bad_share:
        yield (
            f"{split.name}: {len(split.bad)} of {split.read} rows are unusable, more than data.max_bad_share "
            f"{data.max_bad_share:g} allows"
        )
        yield from _named(split.bad)
    if split.overlong and data.overlong == "error":
        yield (
            f"{split.name}: {len(split.overlong)} of {split.read} prompts are too long; raise "
            "data.max_prompt_length, lower data.max_pixels, or set data.overlong to filter"
        )
        yield from _named(split.overlong)
    if not split.lengths:
        yield f"{split.name}: no row is left of {split.read}"
        yield from _named(split.overlong)


def _named(rejected: list[RejectedRow]) -> Iterator[str]:
    for item in rejected[:_NAMED_PROBLEMS]:
        yield f"  {item.row}"
    if len(rejected) > _NAMED_PROBLEMS:
        yield f"  and {len(rejected) - _NAMED_PROBLEMS} more"


def _leaks(split: _Split, held_out: _Split) -> list[str]:
    shared = [uid for uid in held_out.image_rows if uid in split.image_rows]
    if not shared:
        return []
    named = [
        f"  image {uid}: {split.name} row {split.image_rows[uid]}, validation row {held_out.image_rows[uid]}"
        for uid in shared[:_NAMED_PROBLEMS]
    ]
    more = [f"  and {len(shared) - _NAMED_PROBLEMS} more"] if len(shared) > _NAMED_PROBLEMS else []
    return [f"{split.name} and validation share {len(shared)} image(s); held-out rows must be unseen", *named, *more]
