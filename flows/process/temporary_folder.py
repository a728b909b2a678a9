"""A folder of its own for the temporary files of a process that trains or evaluates.

vLLM, torch and the rewards' processes write temporary files whose names do not tell their owner, and a process that is
killed leaves them behind. In a folder with a known owner, the next start can remove them.
"""

import atexit
import fcntl
import os
import shutil
import stat
import tempfile
from functools import cache
from pathlib import Path
from typing import Final

import psutil

PREFIX: Final = "sightline-"
_OWNER = "owner"


@cache
def own_temporary_folder() -> Path:
    """Make this process, and all processes that it starts from now on, write temporary files into a folder that is
    removed at its end. Also removes the folders that killed processes left. Raises OSError where no folder can be made.
    """
    machine = _machine_folder()
    sweep(machine)
    try:
        folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=machine))
        _hold(folder)
    except OSError as error:
        raise OSError(
            f"no folder can be made in {machine} ({error.strerror}): set TMPDIR to a folder with free space"
        ) from None
    _stay_with_the_machine(machine)
    os.environ["TMPDIR"] = tempfile.tempdir = str(folder)
    atexit.register(_remove, folder, owner=os.getpid())
    return folder


def sweep(machine: Path) -> None:
    """Remove this user's folders of processes that are gone; what a living process owns or uses stays."""
    for folder in sorted(machine.glob(f"{PREFIX}*")):
        if _is_ours(folder) and _is_left(folder / _OWNER) and not _is_worked_in(folder):
            shutil.rmtree(folder, ignore_errors=True)


def _machine_folder() -> Path:
    """The machine's folder of temporary files, also in a process that was started by one with a folder of its own."""
    folder = Path(tempfile.gettempdir())
    return folder.parent if folder.name.startswith(PREFIX) else folder


def _hold(folder: Path) -> None:
    """Lock a file in the folder for as long as this process lives: the kernel releases the lock however it ends. The
    file gets its name after it is locked, so that no other process finds it unlocked."""
    waiting = folder / f"{_OWNER}.new"
    descriptor = os.open(waiting, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.rename(waiting, folder / _OWNER)


def _is_ours(folder: Path) -> bool:
    try:
        status = folder.lstat()
    except OSError:  # its owner has just ended
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid()


def _is_left(owner: Path) -> bool:
    """Whether no process holds the lock on this file."""
    try:
        descriptor = os.open(owner, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True


def _is_worked_in(folder: Path) -> bool:
    """Whether a process that the owner started is still there."""
    return any(_temporary_folder_of(process) == str(folder) for process in psutil.process_iter())


def _temporary_folder_of(process: psutil.Process) -> str | None:
    try:
        return process.environ().get("TMPDIR")
    except (psutil.Error, OSError):  # another user's, or gone
        return None


def _stay_with_the_machine(machine: Path) -> None:
    """Keep two kinds of files in the machine's folder: compiled kernels, which the next process reuses, and Ray's
    sockets, whose paths must be short."""
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(machine / f"torchinductor_{os.getuid()}"))
    os.environ.setdefault("RAY_TMPDIR", str(machine))


def _remove(folder: Path, *, owner: int) -> None:
    if os.getpid() == owner:  # a forked child runs this at its end too
        shutil.rmtree(folder, ignore_errors=True)
