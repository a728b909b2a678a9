"""Checks the free disk space before something large is written."""

import errno
import shutil
from pathlib import Path

_GIB = 1 << 30


class DiskFull(OSError):
    """There is not enough free disk space for what is about to be written; `errno` is ENOSPC, as for a full disk."""

    def __init__(self, path: Path, *, bytes_needed: int, bytes_free: int) -> None:
        super().__init__(
            errno.ENOSPC,
            f"{bytes_needed / _GIB:.2f} GiB are needed and {bytes_free / _GIB:.2f} GiB are free on the disk of {path}; "
            "free some space, or lower trainer.save_limit (no result depends on it), and start again: the run "
            "continues from its last checkpoint",
        )


def check_room(path: Path, bytes_needed: int) -> None:
    """Raises DiskFull if less than `bytes_needed` is free on the disk of `path`, which need not exist yet."""
    free = free_bytes(path)
    if free < bytes_needed:
        raise DiskFull(path, bytes_needed=bytes_needed, bytes_free=free)


def free_bytes(path: Path) -> int:
    """Bytes that this user may still write on the disk of `path`, which need not exist yet."""
    existing = next(folder for folder in (path, *path.absolute().parents) if folder.exists())
    return shutil.disk_usage(existing).free
