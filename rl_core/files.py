"""Files and folders that are there whole or not at all, whatever kills the process in between.

Everything is written beside its final name, flushed to the disk, and renamed; the containing folder is flushed after
the rename, so that the name survives a power cut too. A full disk (OSError, ENOSPC) passes through as it is, with the
old state intact and the temporary removed. Temporaries are hidden siblings `.<name>.tmp-<pid>`; a killed process
leaves them behind, and `sweep_temporaries` removes them at the next start.
"""

import errno
import glob
import hashlib
import json
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NOTHING_THERE = "nothing is there"
"""Why there is no file, in the usual case."""

_WHY_NOT = {
    errno.ENOENT: NOTHING_THERE,
    errno.ENOTDIR: "a file is named as a folder on the way to it",
    errno.ELOOP: "symbolic links lead round in a circle",
    errno.ENAMETOOLONG: "the name is too long for the file system",
    errno.EACCES: "it may not be read",
}
_LONGEST_NAME = 255
"""Bytes of one part of a path, on the file systems of Linux."""

_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}

_TEMPORARY = re.compile(r"\.(?P<name>.+)\.(?P<kind>tmp|old)-\d+")


def atomic_write_bytes(path: Path, data: bytes) -> None:
    """Replace the file `path` by `data`; its folder is made if need be. Raises OSError with the old file intact."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = _sibling(path, "tmp")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    fsync_folder(path.parent)


def atomic_write_text(path: Path, text: str) -> None:
    """`atomic_write_bytes` of UTF-8 text."""
    atomic_write_bytes(path, text.encode())


def atomic_write_json(path: Path, value: object) -> None:
    """`atomic_write_text` of indented JSON with sorted keys: equal values give equal bytes.

    Raises:
        TypeError: `value` holds something that JSON does not know; nothing is written then.
        ValueError: `value` holds NaN or an infinity, which JSON does not know either.
    """
    text = json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False)
    atomic_write_text(path, text + "\n")


def check_regular(path: Path) -> None:
    """Make sure that `path` leads to a regular file. Whoever opens a named pipe waits for its writer, for ever if there
    is none; a device may have no end.

    Raises:
        ValueError: it is something else, or cannot be looked at; says which.
    """
    try:
        _check_kind(path)
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from None


def is_regular(path: Path) -> bool:
    """Whether `path` leads to a regular file."""
    return os.path.isfile(path)  # noqa: PTH113 - Path.is_file raises on a name that is too long


def read_regular(path: Path, *, most_bytes: int | None = None) -> bytes:
    """The content of a regular file. Raises ValueError naming it where it is none, cannot be read, or has more than
    `most_bytes`."""
    check_regular(path)
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if most_bytes is not None and size > most_bytes:
                raise ValueError(f"{path} has {size} bytes, more than the {most_bytes} that are read")
            return file.read()
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from None


def read_utf8(path: Path) -> str:
    """A text file that somebody wrote. Raises ValueError naming it where it is not UTF-8 or no regular file, and
    OSError."""
    _check_kind(path)
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise ValueError(f"{path} is not UTF-8 text (line {line}): save it as UTF-8") from None


def cut_file(path: Path, size: int) -> None:
    """Drop what follows the first `size` bytes of a file that is appended to. No byte before them is written again."""
    with path.open("rb+") as file:
        os.ftruncate(file.fileno(), size)
        os.fsync(file.fileno())


def read_json(path: Path) -> Any:
    """The value that `atomic_write_json` wrote. Raises ValueError when what is there is no JSON or no regular file, and
    OSError."""
    _check_kind(path)
    try:
        return json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is no JSON: {error}") from None


def lies_below(path: Path, folder: Path) -> bool:
    """Whether `path` is in `folder` or is it, wherever `..` and symlinks on the way to either lead."""
    # realpath, because Path.resolve raises on a circle of symlinks.
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder))


def relative_name(name: str) -> str:
    """`name`, by which a manifest calls a file below its own folder. What lies there may be linked to another disk.

    Raises:
        ValueError: it is absolute or climbs out by `..`.
    """
    if Path(name).is_absolute() or ".." in Path(name).parts:
        raise ValueError(f"{name!r} is no name of a file below the manifest's folder")
    return name


def fsync_folder(folder: Path) -> None:
    """Flush a folder's list of names to the disk: a rename in it is durable only after this."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def fsync_tree(folder: Path) -> None:
    """Flush every file below `folder`, then every folder, innermost first."""
    for path in files_below(folder):
        with path.open("rb") as file:
            os.fsync(file.fileno())
    for parent, _, _ in os.walk(folder, topdown=False):
        fsync_folder(Path(parent))


def files_below(folder: Path) -> list[Path]:
    """Every regular file below `folder`, in the order of their names."""
    return sorted(path for path in folder.rglob("*") if path.is_file())


def files_named(path: Path) -> list[Path]:
    """What is at `path`; where nothing is and its last part has a `*`, the files of its folder whose names it fits, in
    order. Every other letter stands for itself."""
    if os.path.exists(path):  # noqa: PTH110 - Path.exists raises on a name that is too long
        return [path]
    if "*" not in path.name or not os.path.isdir(path.parent):  # noqa: PTH112 - likewise
        return []
    pattern = re.compile(".*".join(map(re.escape, path.name.split("*"))), re.DOTALL)
    return sorted(file for file in path.parent.iterdir() if pattern.fullmatch(file.name) and file.is_file())


def why_no_file(path: Path) -> str | None:
    """Why `path` leads to no regular file, in words; None when it does. A named pipe or a device would keep whoever
    opens it waiting."""
    try:
        mode = path.stat().st_mode
    except OSError as error:
        return _WHY_NOT.get(error.errno or 0) or (error.strerror or "it cannot be looked at")
    except UnicodeEncodeError:
        return "the name holds half a character"
    except ValueError:
        return "the name holds a null character"
    return None if stat.S_ISREG(mode) else f"it is {_kind(mode)}"


def why_no_folder(path: Path) -> str | None:
    """Why `path` is no folder and cannot become one, in words; None when it is or can. Where it is not there, the
    folders on the way to it decide."""
    if any(len(os.fsencode(part)) > _LONGEST_NAME for part in path.parts):
        return _WHY_NOT[errno.ENAMETOOLONG]  # of a part that is still to be made, nothing else tells
    for place in (path, *path.parents):
        why = why_no_file(place)
        if why is None:
            return "it is a file" if place == path else f"{place} is a file"
        if os.path.isdir(place):  # noqa: PTH112 - Path.is_dir raises on a name that is too long
            return None
        if why != NOTHING_THERE:
            return why
    return None


def link_or_copy(source: Path, target: Path) -> None:
    """A second name for a finished file, or a copy where the file system has no links between the two places."""
    try:
        os.link(source, target)
    except OSError as error:
        if error.errno not in (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP):
            raise
        shutil.copy2(source, target)


def hash_file(path: Path) -> str:
    """The SHA-256 of a file's content, hexadecimal. Raises ValueError for what is no regular file, and OSError."""
    _check_kind(path)
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def folder_hashes(folder: Path) -> dict[str, str]:
    """Relative path (with `/`) -> SHA-256, of every file below `folder`."""
    return {path.relative_to(folder).as_posix(): hash_file(path) for path in files_below(folder)}


@contextmanager
def committed_folder(final: Path) -> Iterator[Path]:
    """Yields an empty temporary folder beside `final`; leaving the block flushes it and puts it in `final`'s place.

    An exception inside the block removes the temporary and leaves `final` as it was.
    """
    temporary = _sibling(final, "tmp")
    _put_back(final)
    shutil.rmtree(temporary, ignore_errors=True)  # a killed process may have had this pid, in a container above all
    temporary.mkdir(parents=True)
    try:
        yield temporary
        replace_folder(temporary, final)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


@contextmanager
def scratch_folder(path: Path) -> Iterator[Path]:
    """Yields an empty folder beside `path`, on its file system, that is gone after the block; `sweep_temporaries`
    removes what a killed process leaves of it."""
    temporary = _sibling(path, "tmp")
    shutil.rmtree(temporary, ignore_errors=True)  # a killed process may have had this pid, in a container above all
    temporary.mkdir(parents=True)
    try:
        yield temporary
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


@contextmanager
def plain_path(folder: Path) -> Iterator[Path]:
    """The folder under a path that libraries can look into which take `*`, `?` and `[` for a pattern, as vLLM does: its
    own, or for the length of the block that of a link to it."""
    if glob.escape(str(folder)) == str(folder):
        yield folder
        return
    with tempfile.TemporaryDirectory() as place:
        link = Path(place) / "folder"
        link.symlink_to(folder.absolute())
        yield link


def replace_folder(temporary: Path, final: Path) -> None:
    """Flush the folder `temporary` and give it the name `final`, on the same file system.

    No file system lets one rename replace a folder that has files in it, so an existing `final` steps aside first.
    A process killed between the two renames leaves no `final`, but its content waits beside it, and
    `sweep_temporaries` or the next `committed_folder` of that name puts it back.
    """
    fsync_tree(temporary)
    aside = _sibling(final, "old")
    if final.exists():
        os.rename(final, aside)
    try:
        os.rename(temporary, final)
    except BaseException:
        _put_back(final)
        raise
    fsync_folder(final.parent)
    shutil.rmtree(aside, ignore_errors=True)


def remove_folder(folder: Path) -> None:
    """Remove a folder such that a killed process leaves it whole or gone, never half there under its name."""
    temporary = _sibling(folder, "tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    os.rename(folder, temporary)
    fsync_folder(folder.parent)
    shutil.rmtree(temporary)


def sweep_temporaries(parent: Path) -> None:
    """Remove what killed processes left in `parent`, and put a folder back that was caught between its two renames.

    Only for the owner of `parent` (the holder of the run's lock), before it starts to write: the temporaries of a
    living writer would go too. A missing `parent` has nothing to sweep.
    """
    if not parent.is_dir():
        return
    for path in sorted(parent.iterdir()):
        match = _TEMPORARY.fullmatch(path.name)
        if match is None:
            continue
        if match["kind"] == "old":
            _put_back(parent / match["name"])
        elif path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


def _check_kind(path: Path) -> None:
    """Raises ValueError for what is no regular file, and OSError where nothing can be looked at."""
    try:
        mode = path.stat().st_mode
    except ValueError:
        raise ValueError(f"{str(path)!r} cannot be the name of a file") from None
    if not stat.S_ISREG(mode):
        raise ValueError(f"{path} is {_kind(mode)}, not a file")


def _sibling(path: Path, kind: str) -> Path:
    return path.with_name(f".{path.name}.{kind}-{os.getpid()}")


def _put_back(final: Path) -> None:
    """Undo the first rename of an unfinished replacement; drop what a finished one left behind."""
    for aside in sorted(final.parent.glob(f".{glob.escape(final.name)}.old-*")):
        if final.exists():
            shutil.rmtree(aside)
        else:
            os.rename(aside, final)
            fsync_folder(final.parent)


def _kind(mode: int) -> str:
    return _KINDS.get(stat.S_IFMT(mode), "something else")
