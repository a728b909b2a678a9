"""The kinds of files with rows. A file that is not what its name says is recognised by its first bytes."""

from pathlib import Path
from typing import Final

FILE_KINDS: Final = ("parquet", "jsonl", "json", "csv", "tsv")
"""Endings of the names of files with rows."""

_LOOKED_AT = 1 << 16

_BEGINNINGS: Final = {
    b"PAR1": "Parquet: let its name end in .parquet",
    b"\x1f\x8b": "compressed by gzip: unpack it first",
    b"\x28\xb5\x2f\xfd": "compressed by zstd: unpack it first",
    b"BZh": "compressed by bzip2: unpack it first",
    b"\xfd7zXZ\0": "compressed by xz: unpack it first",
    b"PK\x03\x04": "a ZIP archive: unpack it first",
    b"ARROW1": "an Arrow file: write it as Parquet",
    b"\xff\xff\xff\xff": "an Arrow stream: write it as Parquet",
    b"\0\0\xfe\xff": "text in UTF-32: save it as UTF-8",
    b"\xff\xfe": "text in UTF-16 or UTF-32: save it as UTF-8",
    b"\xfe\xff": "text in UTF-16 or UTF-32: save it as UTF-8",
    b"version https://git-lfs": "a pointer of Git LFS: fetch the content with `git lfs pull`",
    b"SQLite format 3\0": "an SQLite database: write its rows as JSONL or Parquet",
}
_HTML = (b"<!doctype html", b"<html")


def foreign_kind(start: bytes) -> str | None:
    """The kind of a file whose first bytes show that it is no file of rows, and what to do with it; None for any other
    file."""
    for beginning, kind in _BEGINNINGS.items():
        if start.startswith(beginning):
            return kind
    if start.lstrip().lower().startswith(_HTML):
        return "a web page: perhaps a server's answer in place of the file"
    if start and not start.strip(b"\0"):
        return "nothing but zero bytes at its beginning: perhaps a download that broke off"
    return None


def read_start(path: Path) -> bytes:
    """The first 64 KiB of a file."""
    with path.open("rb") as file:
        return file.read(_LOOKED_AT)


def read_text(path: Path, kind: str) -> str:
    """The file's text; a byte that is not UTF-8 becomes half a surrogate pair, by which its row is recognised. Raises
    ValueError where the file is not of this `kind`, and says what it is."""
    if other := foreign_kind(read_start(path)):
        raise ValueError(f"data source {path}: it is no {kind} but {other}")
    return path.read_bytes().decode("utf-8-sig", errors="surrogateescape")
