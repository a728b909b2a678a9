"""Atomic files and folders: each is there completely or not at all, even if the process is killed or the disk is full.
Everything is written beside its final name (`.<name>.tmp-<pid>`), flushed and renamed, and the containing folder is
flushed too. `sweep_temporaries` removes at the next start what a killed process has left."""

import errno
import glob
import itertools
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

_GIB = 1 << 30


def cache_folder(name: str) -> Path:
    """`$XDG_CACHE_HOME/sightline/NAME` (`~/.cache/sightline/NAME`), whose files may be deleted at any time."""
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "sightline" / name


NOTHING_THERE = "nothing is there"
"""The usual reason why there is no file."""

_WHY_NOT = {
    errno.ENOENT: NOTHING_THERE,
    errno.ENOTDIR: "a part of its path is a file, not a folder",
    errno.ELOOP: "its symbolic links form a circle",
    errno.ENAMETOOLONG: "the name is too long for the file system",
    errno.EACCES: "it may not be read",
}
_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}

_TEMPORARY = re.compile(r"\.(?P<name>.+)\.(?P<kind>tmp|old)-\d+")


class DiskFull(OSError):
    """There is not enough free disk space for what is about to be written; `errno` is ENOSPC, as for a full disk."""

    def __init__(self, path: Path, *, bytes_needed: int, bytes_free: int) -> None:
        super().__init__(
            errno.ENOSPC,
            f"{bytes_needed / _GIB:.2f} GiB are needed and {bytes_free / _GIB:.2f} GiB are free on the disk of {path}; "
            "free some space, or lower trainer.save_limit (no result depends on it), and start again: the run "
            "continues from its last checkpoint",
        )


def atomic_write_bytes(path: Path, data: bytes) -> None:
    """Write `data` to the file `path`, or replace it. If OSError is raised, the old file is intact."""
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
    """Write UTF-8 text with `atomic_write_bytes`."""
    atomic_write_bytes(path, text.encode())


def atomic_write_json(path: Path, value: object) -> None:
    """Write indented JSON with sorted keys with `atomic_write_text`: equal values give equal bytes. Raises TypeError or
    ValueError where a part of `value` is no JSON value; nothing is written then."""
    text = json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False)
    atomic_write_text(path, text + "\n")


def check_regular(path: Path) -> None:
    """Raises ValueError if `path` is not a regular file or cannot be accessed. Opening a named pipe would wait for its
    writer, and reading a device may never end."""
    try:
        check_kind(path)
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from None


def is_regular(path: Path) -> bool:
    """Whether `path` is a regular file, or a link to one."""
    return os.path.isfile(path)  # noqa: PTH113 - Path.is_file raises on a name that is too long


def read_regular(path: Path, *, most_bytes: int | None = None) -> bytes:
    """The content of a regular file. Raises ValueError, with the path, if it cannot be read or has more than
    `most_bytes`."""
    check_regular(path)
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if most_bytes is not None and size > most_bytes:
                raise ValueError(f"{path} has {size} bytes, more than the limit of {most_bytes}")
            return file.read()
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from None


def read_utf8(path: Path) -> str:
    """The content of a text file. Raises ValueError, with the path, if it is not UTF-8 or no regular file, and
    OSError."""
    check_kind(path)
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise ValueError(f"{path} is not UTF-8 text (line {line}): save it as UTF-8") from None


def cut_file(path: Path, size: int) -> None:
    """Cut a file to its first `size` bytes, which are not written again."""
    with path.open("rb+") as file:
        os.ftruncate(file.fileno(), size)
        os.fsync(file.fileno())


def read_json(path: Path) -> Any:
    """The value in a JSON file. Raises ValueError if the file is not JSON or not a regular file, and OSError."""
    check_kind(path)
    try:
        return json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not JSON: {error}") from None


def lies_below(path: Path, folder: Path) -> bool:
    """Whether `path` is `folder` or lies below it, after `..` and symlinks in both are resolved."""
    # realpath, because Path.resolve raises an error for a circle of symlinks.
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder))


def relative_name(name: str) -> str:
    """Check the `name` of a file in a manifest, which must lie below the manifest's folder, and return it. Raises
    ValueError if it is absolute or contains `..`."""
    if Path(name).is_absolute() or ".." in Path(name).parts:
        raise ValueError(f"{name!r} does not name a file below the manifest's folder")
    return name


def numbered(path: Path, ending: str = "") -> Iterator[Path]:
    """A path, then `NAME-2`, `NAME-3`, ... beside it, each before the `ending` that the path has."""
    yield path
    for number in itertools.count(2):
        yield path.with_name(f"{path.name.removesuffix(ending)}-{number}{ending}")


def fsync_folder(folder: Path) -> None:
    """Flush a folder's list of names to the disk, after which a rename in it is durable."""
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
    """All regular files below `folder`, sorted by path."""
    return sorted(path for path in folder.rglob("*") if path.is_file())


def files_named(path: Path) -> list[Path]:
    """The path itself if it exists; else, if `*` stands in its last part, the matching files of its folder, sorted."""
    if os.path.exists(path):  # noqa: PTH110 - Path.exists raises on a name that is too long
        return [path]
    if "*" not in path.name or not os.path.isdir(path.parent):  # noqa: PTH112 - Path.is_dir raises in the same way
        return []
    pattern = re.compile(".*".join(map(re.escape, path.name.split("*"))), re.DOTALL)
    return sorted(file for file in path.parent.iterdir() if pattern.fullmatch(file.name) and file.is_file())


def why_no_file(path: Path) -> str | None:
    """Why `path` is not a regular file, in words; None if it is one."""
    try:
        mode = path.stat().st_mode
    except OSError as error:
        return _WHY_NOT.get(error.errno or 0) or (error.strerror or "it cannot be accessed")
    except ValueError:
        return "the name contains a character that a name cannot have"
    return None if stat.S_ISREG(mode) else f"it is {_kind(mode)}"


def link_or_copy(source: Path, target: Path) -> None:
    """Create a hard link to a finished file, or a copy if the file system does not allow a link."""
    try:
        os.link(source, target)
    except OSError as error:
        if error.errno not in (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP):
            raise
        shutil.copy2(source, target)


@contextmanager
def committed_folder(final: Path) -> Iterator[Path]:
    """Yields an empty folder beside `final`, which is flushed and takes `final`'s place at the end of the block, or is
    removed if the block raises."""
    temporary = _sibling(final, "tmp")
    _put_back(final)
    shutil.rmtree(temporary, ignore_errors=True)  # a killed process may have had this pid, mainly in a container
    temporary.mkdir(parents=True)
    try:
        yield temporary
        replace_folder(temporary, final)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


@contextmanager
def scratch_folder(path: Path) -> Iterator[Path]:
    """Yields an empty folder beside `path`, on its file system, which is removed after the block."""
    temporary = _sibling(path, "tmp")
    shutil.rmtree(temporary, ignore_errors=True)  # a killed process may have had this pid, mainly in a container
    temporary.mkdir(parents=True)
    try:
        yield temporary
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


@contextmanager
def plain_path(folder: Path) -> Iterator[Path]:
    """A path of the folder without `*`, `?` and `[`, which libraries such as vLLM take for a pattern: its own path or,
    inside the block, a link to it."""
    if glob.escape(str(folder)) == str(folder):
        yield folder
        return
    with tempfile.TemporaryDirectory() as place:
        link = Path(place) / "folder"
        link.symlink_to(folder.absolute())
        yield link


def replace_folder(temporary: Path, final: Path) -> None:
    """Flush the folder `temporary` and rename it to `final`, on the same file system. A rename cannot replace a folder
    that has files, so an existing `final` is renamed first. If the process is killed in between, its content is still
    beside it, and `sweep_temporaries` or the next `committed_folder` of that name restores it."""
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
    """Remove a folder in such a way that, if the process is killed, it is either complete or gone."""
    temporary = _sibling(folder, "tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    os.rename(folder, temporary)
    fsync_folder(folder.parent)
    shutil.rmtree(temporary)


def sweep_temporaries(parent: Path) -> None:
    """Remove what killed processes have left in `parent`, and restore a folder whose replacement was interrupted. Only
    the holder of the run's lock may call this, before it starts to write. A missing `parent` is fine."""
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


def check_kind(path: Path) -> None:
    """Raises ValueError if `path` is not a regular file, and OSError if it cannot be accessed."""
    try:
        mode = path.stat().st_mode
    except ValueError:
        raise ValueError(f"{str(path)!r} cannot be the name of a file") from None
    if not stat.S_ISREG(mode):
        raise ValueError(f"{path} is {_kind(mode)}, not a file")


def _sibling(path: Path, kind: str) -> Path:
    return path.with_name(f".{path.name}.{kind}-{os.getpid()}")


def _put_back(final: Path) -> None:
    """Undo the first rename of an unfinished replacement; remove what a finished one has left."""
    for aside in sorted(final.parent.glob(f".{glob.escape(final.name)}.old-*")):
        if final.exists():
            shutil.rmtree(aside)
        else:
            os.rename(aside, final)
            fsync_folder(final.parent)


def _kind(mode: int) -> str:
    return _KINDS.get(stat.S_IFMT(mode), "something else")
