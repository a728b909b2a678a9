"""The lock of a run, for a single writer: a lock file that the kernel releases when its owner ends in any way."""

import fcntl
import os
import time
from pathlib import Path
from types import TracebackType
from typing import Final, Self

_MOMENT_SECONDS: Final = 1.0
"""A lock that is held for longer belongs to a process that writes the run."""

_SECONDS_BETWEEN_TRIES: Final = 0.02


class RunLocked(RuntimeError):
    """Another process writes this run; `owner` is its pid as text, or "unknown" if it has not written it yet."""

    def __init__(self, path: Path, owner: str) -> None:
        super().__init__(
            f"{path.parent} is being written by the process with pid {owner} (lock file {path}); "
            "wait until it ends, or stop it"
        )
        self.owner = owner


class RunLockLost(RuntimeError):
    """This process held the run's lock, but another process may be writing the run now: it must not continue."""


class RunLock:
    """Context manager that holds `path` (flock) and writes this process's pid into it. Raises RunLocked if another
    process holds the lock for longer than a moment; perhaps somebody only looks, or a program is being started, which
    has a copy of every open file. The file is not removed at the end, because then two processes could lock two files
    with the same name. Programs that this process starts do not keep the lock (PEP 446). If somebody removes the file,
    the lock has no effect any more, so code that writes the run calls `ensure_held` first."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> Self:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, until = None, time.monotonic() + _MOMENT_SECONDS
        while descriptor is None:
            try:
                descriptor = _locked(self._path, os.O_CREAT)
            except RunLocked:
                if time.monotonic() > until:
                    raise
                time.sleep(_SECONDS_BETWEEN_TRIES)
        _HELD[self._path.absolute()] = descriptor
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        os.close(_HELD.pop(self._path.absolute()))


_HELD: Final[dict[Path, int]] = {}
"""Descriptors of the lock files that this process holds, by their paths."""


def ensure_held(path: Path) -> None:
    """Make sure, before a run is written, that the lock file `path` still exists, if this process holds it; one that
    was removed is created again. Raises RunLockLost if there is another file with this name, or the run's folder is
    gone."""
    descriptor = _HELD.get(path.absolute())
    if descriptor is None or _is_at(path, descriptor):
        return
    try:
        made = _locked(path, os.O_CREAT | os.O_EXCL)
    except (FileExistsError, RunLocked):
        made = None
    except FileNotFoundError:
        raise RunLockLost(f"{path.parent} was removed while this process wrote it") from None
    if made is None:
        raise RunLockLost(
            f"{path} was removed while this process held it, and another process has written {path.parent} since then, "
            "or is writing it now; this process stops and writes nothing more"
        )
    _HELD[path.absolute()] = made
    os.close(descriptor)


def _locked(path: Path, flags: int) -> int | None:
    """The descriptor of the file, locked, with this process's pid in it; None if it no longer has this name. Raises
    RunLocked."""
    descriptor = os.open(path, os.O_RDWR | flags, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not _is_at(path, descriptor):
            os.close(descriptor)
            return None
        os.ftruncate(descriptor, 0)
        os.write(descriptor, f"{os.getpid()}\n".encode())
    except BlockingIOError:
        os.close(descriptor)
        raise RunLocked(path, _pid_in(path)) from None
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _pid_in(path: Path) -> str:
    try:
        return path.read_text().strip() or "unknown"
    except FileNotFoundError:
        return "unknown"


def _is_at(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def lock_owner(path: Path) -> str | None:
    """The pid, as text, of the process that holds the lock file `path`; None if no process does. This writes
    nothing."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # opening a named pipe would wait otherwise
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _pid_in(path)
    finally:
        os.close(descriptor)
    return None
