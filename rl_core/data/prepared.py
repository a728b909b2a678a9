"""The prepared data on disk: Parquet rows and an image store."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, overload

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from rl_core.config.data import DataConfig
from rl_core.data.images import ImageStore
from rl_core.data.manifest import DataManifest
from rl_core.data.ordering import Arrangement
from rl_core.data.row_preparation import PreparedRow
from rl_core.digests import file_digests
from rl_core.image_sizes import ImageSizes
from rl_core.types import Int32Array, Prompt, VideoClip

IMAGES_FILE = "images.arrow"
REJECTED_FILE = "rejected.jsonl"

SCHEMA = pa.schema(
    [
        ("index", pa.int64()),
        ("uid", pa.string()),
        ("data_source", pa.string()),
        ("question", pa.string()),
        ("text", pa.string()),
        ("answer", pa.string()),
        ("token_ids", pa.large_list(pa.int32())),
        ("engine_token_ids", pa.large_list(pa.int32())),
        ("image_uids", pa.list_(pa.string())),
        ("image_sizes", pa.list_(pa.struct([(name, pa.list_(pa.int32())) for name in ImageSizes._fields]))),
        ("videos", pa.list_(pa.struct([("frame_uids", pa.list_(pa.string())), ("fps", pa.float64())]))),
        ("extra", pa.string()),
    ]
)


def rows_file(split: str) -> str:
    """Name of a split's Parquet file."""
    return f"{split}.parquet"


def rows_table(rows: Sequence[PreparedRow]) -> pa.Table:
    """Rows as a table of SCHEMA; `answer` and `extra` are JSON text, because their types differ between sources."""
    return pa.Table.from_pylist([_record(row) for row in rows], schema=SCHEMA)


class PreparedDataset(Sequence[Prompt]):
    """One split: a sequence of prompts, each made from the table when it is asked for, and their `images`."""

    def __init__(self, table: pa.Table, images: ImageStore) -> None:
        self._table = table
        self.images = images

    @classmethod
    def open(cls, folder: Path, split: str) -> "PreparedDataset":
        """One split. Raises ValueError as `open_all` does, and where there is no such split."""
        datasets = cls.open_all(folder)
        if split not in datasets:
            raise ValueError(f"{folder} has no split {split!r}; it has {', '.join(datasets)}")
        return datasets[split]

    @classmethod
    def open_all(cls, folder: Path) -> "dict[str, PreparedDataset]":
        """Every split of a prepared folder. Raises ValueError where a file is missing or altered by its manifest."""
        manifest = DataManifest.read(folder)
        digests = dict(zip(manifest.files, file_digests(folder / name for name in manifest.files), strict=True))
        if altered := [name for name, file in manifest.files.items() if digests[name] != file.sha256]:
            raise ValueError(f"{folder}: {', '.join(altered)} missing or altered since preparation; prepare again")
        images = ImageStore(folder / IMAGES_FILE)
        return {
            split: cls(pq.read_table(folder / rows_file(split), schema=SCHEMA), images) for split in manifest.splits
        }

    def __len__(self) -> int:
        count: int = self._table.num_rows
        return count

    @overload
    def __getitem__(self, index: int) -> Prompt: ...

    @overload
    def __getitem__(self, index: slice) -> list[Prompt]: ...

    def __getitem__(self, index: int | slice) -> Prompt | list[Prompt]:
        if isinstance(index, slice):
            return [self._prompt(number) for number in range(*index.indices(len(self)))]
        return self._prompt(range(len(self))[index])  # a range raises IndexError and counts from the end

    def __iter__(self) -> Iterator[Prompt]:
        return (self._prompt(number) for number in range(len(self)))

    def data_sources(self) -> list[str]:
        """[rows] the data source of each row."""
        sources: list[str] = self._table.column("data_source").to_pylist()
        return sources

    def extra_columns(self) -> frozenset[str]:
        """The extra columns that any row has."""
        return frozenset(name for extra in self._table.column("extra").to_pylist() for name in json.loads(extra))

    def numbers(self, column: str) -> npt.NDArray[np.float64]:
        """[rows] the numbers of an extra column. Raises KeyError where a row has none."""
        return np.array([json.loads(extra)[column] for extra in self._table.column("extra").to_pylist()], np.float64)

    def content_digest(self) -> str:
        """Digest of what the model is asked in each row, with the order of the rows."""
        found = hashlib.sha256()
        for column in ("uid", "text"):
            for value in self._table.column(column):
                found.update(f"{value.as_py()}\n".encode())
        return found.hexdigest()

    @property
    def images_per_prompt(self) -> int:
        """Most images of any prompt."""
        return self._most("image_uids")

    @property
    def videos_per_prompt(self) -> int:
        """Most videos of any prompt."""
        return self._most("videos")

    def _prompt(self, number: int) -> Prompt:
        return Prompt(
            uid=self._value("uid", number),
            data_source=self._value("data_source", number),
            question=self._value("question", number),
            text=self._value("text", number),
            answer=json.loads(self._value("answer", number)),
            token_ids=self._ids("token_ids", number),
            engine_token_ids=self._ids("engine_token_ids", number),
            image_uids=tuple(self._value("image_uids", number)),
            image_sizes=tuple(
                ImageSizes(original=tuple(sizes["original"]), shown=tuple(sizes["shown"]))
                for sizes in self._value("image_sizes", number) or ()  # there are none in data of an earlier commit
            ),
            videos=tuple(
                VideoClip(frame_uids=tuple(clip["frame_uids"]), fps=clip["fps"])
                for clip in self._value("videos", number)
            ),
            extra=json.loads(self._value("extra", number)),
        )

    def _most(self, column: str) -> int:
        longest: int | None = pc.max(pc.list_value_length(self._table.column(column))).as_py()
        return longest or 0

    def _value(self, column: str, number: int) -> Any:
        return self._table.column(column)[number].as_py()

    def _ids(self, column: str, number: int) -> Int32Array:
        ids: Int32Array = np.asarray(self._table.column(column)[number].values, np.int32)
        return ids


def arrange(dataset: PreparedDataset, data: DataConfig) -> Arrangement:
    """Weighted sources and curriculum of the training rows. Raises ValueError unless the weights name exactly the data
    sources."""
    ranks = None
    if data.curriculum is not None:
        ranks = dataset.numbers(data.curriculum.column) * (-1.0 if data.curriculum.descending else 1.0)
    return Arrangement(data_sources=dataset.data_sources(), source_weights=data.source_weights, ranks=ranks)


def _record(row: PreparedRow) -> dict[str, Any]:
    prompt = row.prompt
    return {
        "index": row.index,
        "uid": prompt.uid,
        "data_source": prompt.data_source,
        "question": prompt.question,
        "text": prompt.text,
        "answer": json.dumps(prompt.answer, ensure_ascii=False),
        "token_ids": prompt.token_ids,
        "engine_token_ids": prompt.engine_token_ids,
        "image_uids": list(prompt.image_uids),
        "image_sizes": [sizes._asdict() for sizes in prompt.image_sizes],
        "videos": [asdict(clip) for clip in prompt.videos],
        "extra": json.dumps(prompt.extra, ensure_ascii=False),
    }
