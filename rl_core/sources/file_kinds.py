"""Recognises by its first bytes a file that is not what its name says."""

import json
from pathlib import Path
from typing import Final

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
    b"\xff\xfe\0\0": "text in UTF-32: save it as UTF-8",
    b"\0\0\xfe\xff": "text in UTF-32: save it as UTF-8",
    b"\xff\xfe": "text in UTF-16: save it as UTF-8",
    b"\xfe\xff": "text in UTF-16: save it as UTF-8",
    b"version https://git-lfs": "a pointer of Git LFS: fetch the content with `git lfs pull`",
    b"SQLite format 3\0": "an SQLite database: write its rows as JSONL or Parquet",
}
_HTML = (b"<!doctype html", b"<html")


def foreign_kind(start: bytes) -> str | None:
    """The kind of a file whose first bytes show that it is no file of rows, and what to do with it; None for any other
    file.

    Args:
        start: Some hundred of its first bytes.
    """
    for beginning, kind in _BEGINNINGS.items():
        if start.startswith(beginning):
            return kind
    if start.lstrip().lower().startswith(_HTML):
        return "a web page: perhaps what a server said instead of the file"
    if start and not start.strip(b"\0"):
        return "nothing but zero bytes at its beginning: perhaps a download that broke off"
    return None


def read_start(path: Path) -> bytes:
    """The first bytes of a file, at most 64 KiB. Raises OSError."""
    with path.open("rb") as file:
        return file.read(_LOOKED_AT)


def check_json_lines(path: Path) -> None:
    """Raises ValueError for a file that cannot be JSONL, and says what it is. All of its lines would be unreadable for
    the same reason."""
    start = read_start(path)
    kind = foreign_kind(start) or _other_json(start)
    if kind is not None:
        raise ValueError(f"{path} is no JSONL but {kind}")


def _other_json(start: bytes) -> str | None:
    """The form of JSON that does not have one object on each line; None for JSONL."""
    lines = [line for line in start.decode("utf-8-sig", errors="replace").splitlines() if line.strip()]
    if not lines:
        return None
    first = lines[0].strip()
    if first.startswith("[") and first[1:].lstrip()[:1] in ("", "{"):
        return "one JSON array: let its name end in .json"
    if len(lines) > 1 and not lines[1].lstrip().startswith("{") and _breaks_off(first):
        return "JSON whose objects go over several lines: write each on a line of its own"
    return None


def _breaks_off(line: str) -> bool:
    """Whether an object begins in a line and does not end in it."""
    try:
        json.loads(line)
    except json.JSONDecodeError as error:
        return line.startswith("{") and error.pos >= len(line)
    except (ValueError, RecursionError):
        return False
    return False
