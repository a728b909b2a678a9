"""The images of prepared data: one memory-mapped Arrow file of encoded images, in which each image is stored once."""

import hashlib
from io import BytesIO
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyarrow as pa
from PIL import Image

_SCHEMA = pa.schema([("uid", pa.string()), ("encoded", pa.binary())])
_BATCH_BYTES = 16 << 20  # of images in one record batch


def image_uid(encoded: bytes) -> str:
    """Identity of an image: the first 16 hexadecimal digits of the SHA-256 of its stored bytes."""
    return hashlib.sha256(encoded).hexdigest()[:16]


class ImageStoreWriter:
    """Writes an image store. A context manager; the file can be read after its end."""

    def __init__(self, path: Path) -> None:
        self._file = pa.OSFile(str(path), "wb")
        self._writer = pa.ipc.new_file(self._file, _SCHEMA)
        self._known: set[str] = set()
        self._pending: dict[str, bytes] = {}
        self._pending_bytes = 0

    def __len__(self) -> int:
        return len(self._known)

    def add(self, encoded: bytes) -> str:
        """Store PNG or JPEG bytes unless they are stored already. Returns their uid."""
        uid = image_uid(encoded)
        if uid not in self._known:
            self._known.add(uid)
            self._pending[uid] = encoded
            self._pending_bytes += len(encoded)
            if self._pending_bytes >= _BATCH_BYTES:
                self._flush()
        return uid

    def _flush(self) -> None:
        columns = [pa.array(list(self._pending), pa.string()), pa.array(list(self._pending.values()), pa.binary())]
        self._writer.write_batch(pa.record_batch(columns, schema=_SCHEMA))
        self._pending, self._pending_bytes = {}, 0

    def close(self) -> None:
        """Write pending images and the end of the file."""
        if self._pending:
            self._flush()
        self._writer.close()
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class ImageStore:
    """Reads an image store; bytes stay on disk until they are asked for. It is pickled as its path. Raises ValueError
    where `path` is no complete image store."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._reader = pa.ipc.open_file(pa.memory_map(str(path)))
        except (OSError, pa.ArrowInvalid) as error:
            raise ValueError(f"{path} is no readable image store: {error}; prepare the data again") from None
        # The batches refer to the mapped file: only the uids are read here.
        self._batches = [self._reader.get_batch(number) for number in range(self._reader.num_record_batches)]
        self._places = {
            uid: (number, row)
            for number, batch in enumerate(self._batches)
            for row, uid in enumerate(batch.column("uid").to_pylist())
        }

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, uid: object) -> bool:
        return uid in self._places

    def encoded(self, uid: str) -> bytes:
        """The PNG or JPEG bytes. Raises KeyError for an unknown uid."""
        if uid not in self._places:
            raise KeyError(f"no image {uid} in {self._path}")
        batch, row = self._places[uid]
        value: bytes = self._batches[batch].column("encoded")[row].as_py()
        return value

    def image(self, uid: str) -> Image.Image:
        """The decoded RGB image. Raises KeyError for an unknown uid."""
        return Image.open(BytesIO(self.encoded(uid))).convert("RGB")

    def __reduce__(self) -> tuple[Any, ...]:
        return (ImageStore, (self._path,))
