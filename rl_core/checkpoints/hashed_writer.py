"""Writes the tensors of a checkpoint in several threads, and hashes each file in the same pass."""

import hashlib
import io
import math
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, cast

import torch
from torch.distributed.checkpoint.filesystem import DEFAULT_SUFFIX, FileSystemWriter, _StorageInfo
from torch.distributed.checkpoint.metadata import StorageMeta
from torch.distributed.checkpoint.planner import SavePlan, SavePlanner, WriteItem, WriteItemType
from torch.distributed.checkpoint.storage import WriteResult
from torch.futures import Future

from rl_core.digests import FileRecord

MOST_FILES = 8
"""Files that one worker writes at a time. Hashing and copying take a core for each, at about 0.5 GB/s."""

FILE_BYTES = 64 << 20
"""Bytes of tensors for which one more file is begun. A smaller file would not be worth the time to flush it."""


class HashedWriter(FileSystemWriter):
    """Writes the format of torch's FileSystemWriter, in files that depend on the state alone: the metadata has neither
    the folder's path nor a random id. Each thread holds one tensor in the host's memory; torch's own writer holds all
    tensors of a file."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._folder = folder
        self._written: dict[str, FileRecord] = {}

    @property
    def written(self) -> Mapping[str, FileRecord]:
        """The files with tensors that this worker has written, by their names in the folder."""
        return self._written

    def storage_meta(self) -> StorageMeta:
        """Nothing that differs between equal states."""
        return StorageMeta()

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        """Write the items of the plan. Raises OSError if the disk is full or failing."""
        parts = _split(plan.items)
        names = [f"{plan.storage_data.prefix}{number}{DEFAULT_SUFFIX}" for number in range(len(parts))]
        with ThreadPoolExecutor(MOST_FILES, thread_name_prefix="checkpoint-file") as threads:
            begun = [
                threads.submit(_write_file, self._folder / n, p, planner) for n, p in zip(names, parts, strict=True)
            ]
        results: list[WriteResult] = []
        for name, done in zip(names, begun, strict=True):
            of_file, self._written[name] = done.result()
            results += of_file
        finished: Future[list[WriteResult]] = Future()
        finished.set_result(results)
        return finished


class _HashingStream:
    """A file that is written from its start to its end, and hashed on the way."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._digest = hashlib.sha256()
        self._size = 0

    def write(self, data: bytes | memoryview) -> int:
        """Write all of `data`. Returns its number of bytes."""
        self._digest.update(data)
        self._size += self._file.write(data)
        return len(data)

    def flush(self) -> None:
        """Hand the bytes so far to the system."""
        self._file.flush()

    def tell(self) -> int:
        """The number of bytes written so far."""
        return self._size

    def record(self) -> FileRecord:
        """Size and hash of what was written so far."""
        return FileRecord(size=self._size, sha256=self._digest.hexdigest())


def _write_file(path: Path, items: Sequence[WriteItem], planner: SavePlanner) -> tuple[list[WriteResult], FileRecord]:
    with path.open("wb") as file:
        stream = _HashingStream(file)
        results = [_write_item(stream, item, planner, name=path.name) for item in items]
        file.flush()
        os.fsync(file.fileno())
    return results, stream.record()


def _write_item(stream: _HashingStream, item: WriteItem, planner: SavePlanner, *, name: str) -> WriteResult:
    start = stream.tell()
    data = planner.resolve_data(item)
    if isinstance(data, io.BytesIO):
        stream.write(data.getbuffer())
    else:
        torch.save(_on_host(data), cast(IO[bytes], stream))
    length = stream.tell() - start
    place = _StorageInfo(relative_path=name, offset=start, length=length)
    return WriteResult(index=item.index, size_in_bytes=length, storage_data=place)


def _on_host(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor in the host's memory, without the rest of a larger storage, which torch.save would write too."""
    tensor = tensor.detach().cpu()
    return tensor if tensor.untyped_storage().nbytes() == tensor.nbytes else tensor.clone()


def _split(items: Sequence[WriteItem]) -> list[list[WriteItem]]:
    """Distribute the items over files of about equal size, the largest items first; plain values are in the first
    file. A small state is one file, in the order of its items."""
    plain = [item for item in items if item.type == WriteItemType.BYTE_IO]
    tensors = [item for item in items if item.type != WriteItemType.BYTE_IO]
    count = min(MOST_FILES, 1 + sum(map(_num_bytes, tensors)) // FILE_BYTES)
    if count == 1:
        return [[*plain, *tensors]]
    parts: list[list[WriteItem]] = [plain, *([] for _ in range(count - 1))]
    sizes = [0] * count
    for item in sorted(tensors, key=_num_bytes, reverse=True):
        smallest = sizes.index(min(sizes))
        parts[smallest].append(item)
        sizes[smallest] += _num_bytes(item)
    return parts


def _num_bytes(item: WriteItem) -> int:
    """Of this worker's part of a tensor."""
    assert item.tensor_data is not None, "a tensor"
    return math.prod(item.tensor_data.chunk.sizes) * item.tensor_data.properties.dtype.itemsize
