"""One writer a run: a lock file that the kernel releases when its owner dies, however it dies."""

import fcntl
import os
from pathlib import Path
from types import TracebackType
from typing import Self


class RunLocked(RuntimeError):
    """Another process writes this run; `owner` is its pid as text ("unknown" for the moment before it is written)."""

    def __init__(self, path: Path, owner: str) -> None:
        super().__init__(
            f"{path.parent} is being written by the process with pid {owner} (lock file {path}); "
            "wait until it ends, or stop it"
        )
        self.owner = owner


class RunLock:
    """Context manager that holds `path` (flock) and writes this process's pid into it.

    The file stays when the lock is released: removing it would let two processes lock two files of one name. The lock
    belongs to the open file, which is closed in programs that this process starts (PEP 446), so children do not keep
    a dead owner's run locked; an `os.fork` without exec would.

    Raises:
        RunLocked: on entry, when a living process holds it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None

    def __enter__(self) -> Self:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(descriptor, 0)
            os.write(descriptor, f"{os.getpid()}\n".encode())
        except BlockingIOError:
            os.close(descriptor)
            raise RunLocked(self._path, self._path.read_text().strip() or "unknown") from None
        except OSError:
            os.close(descriptor)
            raise
        self._descriptor = descriptor
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def lock_owner(path: Path) -> str | None:
    """The pid, as text, of the process that holds the lock file `path`; None when nobody does, or there is none.

    For who only looks: nothing is written. While it looks (microseconds) a starter would be refused.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return path.read_text().strip() or "unknown"
    finally:
        os.close(descriptor)
    return None
