"""The images of prepared data: one memory-mapped Arrow file of encoded images, in which each image is stored once."""

import hashlib
import os
from functools import cache
from io import BytesIO
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyarrow as pa
from PIL import Image

from rl_core.data.crops import Crop
from rl_core.data.pixels import encode_png
from rl_core.files import atomic_write_bytes
from rl_core.isolation.order import IMAGES_VARIABLE
from rl_core.run_directory import RunDirectory

_SCHEMA = pa.schema([("uid", pa.string()), ("encoded", pa.binary())])
_BATCH_BYTES = 16 << 20  # of images in one record batch


def image_uid(encoded: bytes) -> str:
    """Identity of an image: the first 16 hexadecimal digits of the SHA-256 of its stored bytes."""
    return hashlib.sha256(encoded).hexdigest()[:16]


def source_uid(uid: str) -> str:
    """Uid of the picture of which the image `uid` is a smaller copy; such a picture is stored if
    `data.max_source_pixels` asks for it."""
    return f"source-{uid}"


_MADE = "made-"


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

    def add(self, encoded: bytes, *, source: bytes | None = None) -> str:
        """Store PNG or JPEG bytes unless they are stored already, and those of the picture of which they are a smaller
        copy, for its crops. Returns the uid of both: pictures whose copies are equal have different ones."""
        uid = image_uid(encoded if source is None else encoded + source)
        self._add(uid, encoded)
        if source is not None:
            self._add(source_uid(uid), source)
        return uid

    def _add(self, uid: str, encoded: bytes) -> None:
        if uid not in self._known:
            self._known.add(uid)
            self._pending[uid] = encoded
            self._pending_bytes += len(encoded)
            if self._pending_bytes >= _BATCH_BYTES:
                self._flush()

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
    """Reads an image store; bytes stay on disk until they are asked for, and crops of its images are made when they
    are. What a tool has made lies in files of the run whose data the store belongs to, where each of its processes
    reads it. It is
    pickled as its path. Raises ValueError where `path` is no complete image store."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._made = RunDirectory(path.parent.parent).tool_images
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
        crop = Crop.of_uid(uid) if isinstance(uid, str) else None
        return (uid if crop is None else crop.parent) in self._places

    def add_made(self, encoded: bytes) -> str:
        """Keep the PNG bytes of an image that a tool has made. Returns its uid."""
        uid = f"{_MADE}{image_uid(encoded)}"
        file = self._made_file(uid)
        if not file.is_file():
            atomic_write_bytes(file, encoded)
        return uid

    def _made_file(self, uid: str) -> Path:
        return self._made / f"{uid}.png"

    def encoded(self, uid: str) -> bytes:
        """The PNG or JPEG bytes. Raises KeyError for an unknown uid."""
        if (crop := Crop.of_uid(uid)) is not None:
            return encode_png(self._cut(crop))
        if uid.startswith(_MADE) and self._made_file(uid).is_file():
            return self._made_file(uid).read_bytes()
        if uid not in self._places:
            raise KeyError(f"no image {uid} in {self._path}")
        batch, row = self._places[uid]
        value: bytes = self._batches[batch].column("encoded")[row].as_py()
        return value

    def image(self, uid: str) -> Image.Image:
        """The decoded RGB image. Raises KeyError for an unknown uid."""
        if (crop := Crop.of_uid(uid)) is not None:
            return self._cut(crop)
        return Image.open(BytesIO(self.encoded(uid))).convert("RGB")

    def _cut(self, crop: Crop) -> Image.Image:
        source = source_uid(crop.parent)
        return crop.cut(self.image(source if source in self else crop.parent))

    def __reduce__(self) -> tuple[Any, ...]:
        return (ImageStore, (self._path,))


@cache
def images_of_run() -> ImageStore:
    """The images of the run, in a process that calls its functions."""
    return ImageStore(Path(os.environ[IMAGES_VARIABLE]))
