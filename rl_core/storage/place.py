"""A folder on any file system that fsspec supports, with the few operations that a run's copy needs.

S3 and Google Cloud Storage are reached through pyarrow, which is a dependency anyway. Credentials come from the
environment and the usual files of these services' tools, never from an address.
"""

import dataclasses
import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import IO, Any, Self
from urllib.parse import urlsplit

import fsspec

from rl_core.files import atomic_write_bytes
from rl_core.redaction import redact

_BLOCK_BYTES = 4 << 20
_PATIENCE = timedelta(seconds=30)
"""Time limit for Google Cloud Storage. The library's default of 15 minutes would delay the end of a run."""

_SECONDS_TO_CONNECT = 10.0
_SECONDS_TO_ANSWER = 60.0
"""Time limits for S3. By default the library gives up after 3 seconds without data, which is too short for a busy
store."""

S3_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
"""Environment variables with the address of an S3 store other than Amazon's."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """The folder `root` of a file system of fsspec. Names are relative to it, with `/`. Every method raises OSError if
    the file system does not answer. `kind` is "folder" on this machine, "objects" for an object store, else "other"."""

    system: Any
    root: str
    kind: str

    @classmethod
    def at(cls, address: str) -> Self:
        """The place of a path or `protocol://...`. Raises ValueError where no package knows the protocol."""
        protocol, _, path = address.partition("://")
        if not path:
            return cls(system=fsspec.filesystem("file"), root=str(Path(address).absolute()), kind="folder")
        objects = {"s3": _s3, "s3a": _s3, "gs": _google, "gcs": _google}.get(protocol)
        if objects is not None:
            return cls(system=objects(), root=path.rstrip("/"), kind="objects")
        try:
            system, root = fsspec.url_to_fs(address)
        except (ImportError, ValueError) as error:
            raise ValueError(f"the storage {redact(address)} cannot be reached: {error}") from None
        kind = "folder" if protocol in ("file", "local") else "other"
        return cls(system=system, root=root.rstrip("/"), kind=kind)

    def below(self, name: str) -> Self:
        """A folder inside this one."""
        return dataclasses.replace(self, root=f"{self.root}/{name}")

    def names(self, folder: str) -> list[str]:
        """The names directly in a folder; none if there is no such folder."""
        self.system.invalidate_cache()  # some file systems cache a listing that another machine may have changed
        try:
            found = self.system.ls(self._path(folder), detail=False)
        except FileNotFoundError:
            return []
        last = (str(path).rstrip("/").rpartition("/")[2] for path in found)
        return sorted(name for name in last if name and name != folder.rpartition("/")[2])

    def read(self, name: str) -> bytes:
        """The content of a small file. Raises FileNotFoundError."""
        return bytes(self.system.cat_file(self._path(name)))

    def write(self, name: str, data: bytes) -> None:
        """Write a small file, or replace it. In a folder and in an object store this is atomic."""
        if self.kind == "folder":
            atomic_write_bytes(Path(self._path(name)), data)
            return
        with self._writing(name) as stream:
            stream.write(data)

    def remove(self, name: str) -> None:
        """Remove a file, if it exists."""
        try:
            self.system.rm_file(self._path(name))
        except FileNotFoundError:
            return

    def put(self, file: Path, name: str, *, size: int) -> str:
        """Copy the first `size` bytes of a file to this place, and return their SHA-256. A copy that fails may leave a
        part."""
        digest = hashlib.sha256()
        with file.open("rb") as source, self._writing(name) as target:
            while size and (block := source.read(min(size, _BLOCK_BYTES))):
                size -= len(block)
                digest.update(block)
                target.write(block)
            if self.kind == "folder":
                target.flush()
                os.fsync(target.fileno())
        return digest.hexdigest()

    def get(self, name: str, file: Path) -> str:
        """Copy a file from this place, and return its SHA-256. Raises FileNotFoundError."""
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("wb") as target:
            return self._read_through(name, target.write)

    def digest(self, name: str) -> str:
        """The SHA-256 of a file in this place. Raises FileNotFoundError."""
        return self._read_through(name, lambda block: None)

    def _read_through(self, name: str, take: Callable[[bytes], object]) -> str:
        digest = hashlib.sha256()
        with self.system.open(self._path(name), "rb") as source:
            while block := source.read(_BLOCK_BYTES):
                digest.update(block)
                take(block)
        return digest.hexdigest()

    def _writing(self, name: str) -> IO[bytes]:
        path = self._path(name)
        if self.kind != "objects":  # in an object store, makedirs would create an empty object
            self.system.makedirs(path.rpartition("/")[0], exist_ok=True)
        stream: IO[bytes] = self.system.open(path, "wb")
        return stream

    def _path(self, name: str) -> str:
        return f"{self.root}/{name}"


def _s3() -> Any:
    from fsspec.implementations.arrow import ArrowFSWrapper
    from pyarrow.fs import S3FileSystem

    # Arrow reads credentials and region by itself, but not the address of a store other than Amazon's.
    endpoint = next((os.environ[name] for name in S3_ENDPOINTS if os.environ.get(name)), "")
    parts = urlsplit(endpoint if not endpoint or "://" in endpoint else f"https://{endpoint}")
    # With background writes, a whole file would be held in memory if the disk is faster than the store.
    system = S3FileSystem(
        scheme=parts.scheme or "https",
        endpoint_override=parts.netloc or None,
        background_writes=False,
        connect_timeout=_SECONDS_TO_CONNECT,
        request_timeout=_SECONDS_TO_ANSWER,
    )
    return ArrowFSWrapper(system)


def _google() -> Any:
    from fsspec.implementations.arrow import ArrowFSWrapper
    from pyarrow.fs import GcsFileSystem

    return ArrowFSWrapper(GcsFileSystem(retry_time_limit=_PATIENCE))
