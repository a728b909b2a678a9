"""Hashes of files, digests of values, and JSON files that have a hash of their own content."""

import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import AfterValidator, BaseModel, NonNegativeInt

from rl_core.files import check_kind, files_below, is_regular, relative_name

LEAST_BYTES: Final = 1 << 20
"""`hash_file` always reads smaller files, which takes a millisecond."""

_THREADS = 8
"""Number of files that are hashed at a time."""

_BLOCK_BYTES = 1 << 20
_OWN_HASH = "sha256"

_known: Final[dict[tuple[int, int, int, int], str]] = {}
"""(device, inode, size, time of change) -> hash."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FileRecord:
    """A file as it was written. `sha256` is the hash of its first `size` bytes, hexadecimal."""

    sha256: str
    size: NonNegativeInt


RelativeName = Annotated[str, AfterValidator(relative_name)]
"""The path of a file below the folder of its manifest."""


def digest_of(value: object) -> str:
    """The first 12 hexadecimal digits of the SHA-256 of a value's canonical JSON; a pydantic model is dumped first."""
    plain = value.model_dump(mode="json") if isinstance(value, BaseModel) else value
    text = json.dumps(plain, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def hash_file(path: Path) -> str:
    """The SHA-256 of a file's content, hexadecimal. A large file with a remembered hash is not read again. Raises
    ValueError where it is not a regular file, and OSError."""
    check_kind(path)
    with path.open("rb") as file:
        status = os.fstat(file.fileno())
        known = _known.get(_identity(status)) if status.st_size >= LEAST_BYTES else None
        if known is None:
            known = hashlib.file_digest(file, "sha256").hexdigest()
            note_hash(status, known)
    return known


def note_hash(status: os.stat_result, sha256: str) -> None:
    """Remember the hash of a file that had this status before it was read, or after it was written."""
    _known[_identity(status)] = sha256


def hash_files(paths: Sequence[Path]) -> list[str]:
    """The SHA-256 of each file, several at a time. Raises the first error of `hash_file`."""
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="hash") as threads:
        return list(threads.map(hash_file, paths))


def records_below(folder: Path, paths: Iterable[Path]) -> dict[str, FileRecord]:
    """[path below the folder, with `/`] -> record, of these files. Raises the first error of `hash_file`."""
    files = list(paths)
    sizes = [path.stat().st_size for path in files]
    return {
        path.relative_to(folder).as_posix(): FileRecord(sha256=sha256, size=size)
        for path, sha256, size in zip(files, hash_files(files), sizes, strict=True)
    }


def wrong_size(file: Path, record: FileRecord) -> str | None:
    """That a file is missing or has another size than its record, in words; None where it has not. It is not read."""
    if not is_regular(file):
        return "is missing"
    size = file.stat().st_size
    return None if size == record.size else f"has {size} bytes instead of {record.size}"


def hash_of_start(file: Path, size: int) -> str:
    """SHA-256 of the first `size` bytes of a file, hexadecimal."""
    digest = hashlib.sha256()
    remaining = size
    with file.open("rb") as stream:
        while remaining and (block := stream.read(min(remaining, _BLOCK_BYTES))):
            digest.update(block)
            remaining -= len(block)
    return digest.hexdigest()


def folder_records(folder: Path) -> dict[str, FileRecord]:
    """[path below the folder, with `/`] -> record, of every file there."""
    return records_below(folder, files_below(folder))


def digest_of_sources(*packages: Path) -> str:
    """Digest of all files of some packages, but for compiled and hidden ones."""
    found = {}
    for package in packages:
        files = [path for path in files_below(package) if path.parent.name != "__pycache__" and path.name[0] != "."]
        found[package.name] = {name: file.sha256 for name, file in records_below(package, files).items()}
    return digest_of(found)


def file_digest(path: Path) -> str:
    """SHA-256 of an input, which is not read again while its hash is remembered, however small it is. Raises
    ValueError."""
    try:
        return _known.get(_identity(path.stat())) or hash_file(path)
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from None


def file_digests(paths: Iterable[Path]) -> list[str | None]:
    """`file_digest` of each file, in order; None for a file that does not exist, so that its creation is a change."""
    with ThreadPoolExecutor(min(_THREADS, os.cpu_count() or 1)) as pool:
        return list(pool.map(lambda path: file_digest(path) if is_regular(path) else None, paths))


def sealed(content: Mapping[str, Any]) -> dict[str, Any]:
    """A JSON object with a hash of its own content, so that damage to it is noticed."""
    return {**content, _OWN_HASH: _own_hash(content)}


def unsealed(content: object) -> dict[str, Any]:
    """The content of what `sealed` returned. Raises ValueError for anything else."""
    if not isinstance(content, dict):
        raise ValueError("it is not a JSON object")
    inner = {name: value for name, value in content.items() if name != _OWN_HASH}
    if content.get(_OWN_HASH) != _own_hash(inner):
        raise ValueError("it was altered: its own SHA-256 does not match")
    return inner


def _own_hash(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _identity(status: os.stat_result) -> tuple[int, int, int, int]:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
