"""Hashes of large files that this process has written or read already, so that it reads none of them again.

A checkpoint of a large model has tens of gigabytes, and its hash is asked for when it is saved, when its epoch is
recorded, and when the model is chosen. A file counts as unchanged while its inode, size and time of change are the
same; a rename, also of its folder, changes none of them. Another process knows nothing of this: it reads the files.
"""

import os
from pathlib import Path
from typing import Final, NamedTuple

LEAST_BYTES: Final = 1 << 20
"""Smaller files are always read, which takes a millisecond."""


class _Identity(NamedTuple):
    """What distinguishes the content of a file from that of any other file, and from its own earlier content."""

    device: int
    inode: int
    size: int
    changed_ns: int


_known: Final[dict[_Identity, str]] = {}


def note_hash(status: os.stat_result, sha256: str) -> None:
    """Remember the hash of a file.

    Args:
        status: The file's status before it was read, or after it was written.
        sha256: The hash of its content, hexadecimal.
    """
    if status.st_size >= LEAST_BYTES:
        _known[_identity(status)] = sha256


def known_hash(path: Path) -> str | None:
    """The hash of a file that has not changed since it was noted; None if it is not known. Raises OSError."""
    return _known.get(_identity(path.stat()))


def _identity(status: os.stat_result) -> _Identity:
    return _Identity(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
