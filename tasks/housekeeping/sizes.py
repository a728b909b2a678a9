"""How much space runs take on the disk. The files of a stage that was taken over are linked, so that two runs may share
the bytes of a file; removing one of the runs does not free them."""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

_BLOCK_BYTES = 512
"""Unit of `st_blocks`, on every file system."""


def size_on_disk(folders: Iterable[Path]) -> int:
    """Bytes that the files in the folders take; a file with several links counts once."""
    return sum(_bytes_of(file) for file in {(file.st_dev, file.st_ino): file for file in _files(folders)}.values())


def freed_bytes(folders: Iterable[Path]) -> int:
    """Bytes that become free when the folders are removed: the bytes of files that have no link elsewhere."""
    names: dict[tuple[int, int], int] = {}
    files: dict[tuple[int, int], os.stat_result] = {}
    for file in _files(folders):
        key = (file.st_dev, file.st_ino)
        names[key] = names.get(key, 0) + 1
        files[key] = file
    return sum(_bytes_of(file) for key, file in files.items() if names[key] == file.st_nlink)


def human_bytes(count: int) -> str:
    """ "512 B", "3.4 MB", "12 GB"; powers of 1000, as disks are sold and `df -H` counts."""
    size, unit = float(count), "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if size < 1000:
            break
        size, unit = size / 1000, larger
    return f"{size:.0f} {unit}" if unit == "B" or size >= 10 else f"{size:.1f} {unit}"


def _bytes_of(file: os.stat_result) -> int:
    return file.st_blocks * _BLOCK_BYTES


def _files(folders: Iterable[Path]) -> Iterator[os.stat_result]:
    """All files; a symbolic link counts as itself. A file that is removed meanwhile is left out."""
    for folder in folders:
        for parent, _, names in os.walk(folder):
            for name in names:
                try:
                    yield os.lstat(os.path.join(parent, name))  # noqa: PTH118 (twice as fast over many files)
                except FileNotFoundError:
                    continue
