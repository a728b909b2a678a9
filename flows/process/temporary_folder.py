"""Temporary files of a process that trains or evaluates lie in a folder of its own.

vLLM, torch and the rewards' processes write some under names that tell no owner, and a process that is killed leaves
them. In a folder whose owner can be told they are removed by the next start.
"""

import atexit
import fcntl
import os
import re
import shutil
import stat
import tempfile
from functools import cache
from getpass import getuser
from pathlib import Path
from typing import Final

import psutil

PREFIX: Final = "sightline-"
_OWNER = "owner"


@cache
def own_temporary_folder() -> Path:
    """Let this process, and all that it starts from now on, write temporary files into a folder that is gone with it;
    remove the folders that killed processes left beside it.

    Raises:
        OSError: no folder can be made.
    """
    machine = _machine_folder()
    sweep(machine)
    try:
        folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=machine))
        _hold(folder)
    except OSError as error:
        raise OSError(f"no folder can be made in {machine} ({error.strerror}): set TMPDIR to one with room") from None
    _stay_with_the_machine(machine)
    os.environ["TMPDIR"] = tempfile.tempdir = str(folder)
    atexit.register(_remove, folder, owner=os.getpid())
    return folder


def sweep(machine: Path) -> None:
    """Remove the temporary folders of this user's processes that are gone. Another user's, one that a living process
    owns or still works in, and whatever else is there stay."""
    for folder in sorted(machine.glob(f"{PREFIX}*")):
        if _is_ours(folder) and _is_left(folder / _OWNER) and not _is_worked_in(folder):
            shutil.rmtree(folder, ignore_errors=True)


def _machine_folder() -> Path:
    """Where temporary files of this machine lie; a process that such a process started has its folder beside it."""
    folder = Path(tempfile.gettempdir())
    return folder.parent if folder.name.startswith(PREFIX) else folder


def _hold(folder: Path) -> None:
    """Own the folder for as long as this process lives: the kernel gives the lock back however it ends. The file gets
    its name when it is locked, so that nobody finds it without an owner before."""
    waiting = folder / f"{_OWNER}.new"
    descriptor = os.open(waiting, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.rename(waiting, folder / _OWNER)


def _is_ours(folder: Path) -> bool:
    try:
        status = folder.lstat()
    except OSError:  # its owner has ended in this moment
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid()


def _is_left(owner: Path) -> bool:
    """Whether nobody holds the file any more."""
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
    """What is no leftover: compiled kernels, which the next process takes up, and Ray's sockets, whose paths must be
    short."""
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(machine / f"torchinductor_{_user()}"))
    os.environ.setdefault("RAY_TMPDIR", str(machine))


def _user() -> str:
    """As torch calls its folder after."""
    try:
        name = getuser()
    except (KeyError, ModuleNotFoundError, OSError):  # a number that has no name on this machine
        name = f"uid_{os.getuid()}"
    return re.sub(r'[\\/:*?"<>|]', "_", name)


def _remove(folder: Path, *, owner: int) -> None:
    if os.getpid() == owner:  # a forked child ends too
        shutil.rmtree(folder, ignore_errors=True)
