"""Short digests of values and of files."""

import hashlib
import json
import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

from pydantic import BaseModel

from rl_core.files import hash_file, is_regular


def digest_of(value: object) -> str:
    """The first 12 hexadecimal digits of the SHA-256 of a value's canonical JSON; a pydantic model is dumped first."""
    plain = value.model_dump(mode="json") if isinstance(value, BaseModel) else value
    text = json.dumps(plain, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def file_digest(path: Path) -> str:
    """SHA-256 of a file's content, cached in this process while size and modification time stay the same.

    Raises:
        ValueError: the file cannot be read.
    """
    try:
        status = path.stat()
        return _digest(path.resolve(), status.st_size, status.st_mtime_ns)
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from None


def file_digests(paths: Iterable[Path]) -> list[str | None]:
    """`file_digest` of each file, in order; None for a file that does not exist, so that its creation is a change.

    Raises:
        ValueError: a file cannot be read.
    """
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        return list(pool.map(lambda path: file_digest(path) if is_regular(path) else None, paths))


@cache
def _digest(path: Path, size: int, changed_ns: int) -> str:
    return hash_file(path)
