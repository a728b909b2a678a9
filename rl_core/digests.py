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
    """The first 12 hexadecimal digits of the SHA-256 of a value's canonical JSON; pydantic models are dumped first."""
    plain = value.model_dump(mode="json") if isinstance(value, BaseModel) else value
    text = json.dumps(plain, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def file_digest(path: Path) -> str:
    """SHA-256 of a file's content, remembered in this process while its size and time of change stay the same.

    Raises:
        ValueError: The file cannot be read.
    """
    try:
        status = path.stat()
        return _digest(path.resolve(), status.st_size, status.st_mtime_ns)
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from None


def file_digests(paths: Iterable[Path]) -> list[str | None]:
    """`file_digest` of each, in order; None for a file that is not there, whose appearance is then a change. Raises
    ValueError as file_digest does."""
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        return list(pool.map(lambda path: file_digest(path) if is_regular(path) else None, paths))


@cache
def _digest(path: Path, size: int, changed_ns: int) -> str:
    return hash_file(path)
