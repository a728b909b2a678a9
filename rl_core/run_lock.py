"""One writer a run: a lock file that the kernel releases when its owner dies, however it dies."""

import fcntl
import os
from pathlib import Path
from types import TracebackType
from typing import Final, Self


class RunLocked(RuntimeError):
    """Another process writes this run; `owner` is its pid as text ("unknown" for the moment before it is written)."""

    def __init__(self, path: Path, owner: str) -> None:
        super().__init__(
            f"{path.parent} is being written by the process with pid {owner} (lock file {path}); "
            "wait until it ends, or stop it"
        )
        self.owner = owner


class RunLockLost(RuntimeError):
    """This process held the run's lock, and cannot know any more that it alone writes the run: it must not go on."""


class RunLock:
    """Context manager that holds `path` (flock) and writes this process's pid into it.

    The file stays when the lock is released: removing it would let two processes lock two files of one name. The lock
    belongs to the open file, which is closed in programs that this process starts (PEP 446), so children do not keep
    a dead owner's run locked; an `os.fork` without exec would.

    Somebody may remove the file all the same, and the lock on it then keeps nobody out: whoever writes the run calls
    `ensure_held` before.

    Raises:
        RunLocked: on entry, when a living process holds it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> Self:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = None
        while descriptor is None:
            descriptor = _locked(self._path, os.O_CREAT)
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
    """Called before a run is written: if this process holds the lock file `path`, that the file is still there under
    its name. One that was removed is made again, as nobody can have taken it: who does, leaves a file of that name.

    Raises:
        RunLockLost: another file has its name, or the run's folder is gone.
    """
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
            f"{path} was removed while this process held it, and another one has written {path.parent} since, or does "
            "so now; this one stops and writes nothing more"
        )
    _HELD[path.absolute()] = made
    os.close(descriptor)


def _locked(path: Path, flags: int) -> int | None:
    """Open and lock a file, with this process's pid in it. Returns its descriptor; None when the file that was locked
    no longer has the name. Raises RunLocked."""
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
    """The pid, as text, of the process that holds the lock file `path`; None when nobody does, or there is none.

    For who only looks: nothing is written. While it looks (microseconds) a starter would be refused.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # whatever has the name: a named pipe would wait
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _pid_in(path)
    finally:
        os.close(descriptor)
    return None
