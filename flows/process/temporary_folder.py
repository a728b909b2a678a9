"""A folder of its own for the temporary files of a process that trains or evaluates.

vLLM, torch and the rewards' processes write temporary files whose names do not show their owner, and a process that is
killed leaves them behind. In a folder with a known owner, the next start can remove them.
"""

import atexit
import os
import shutil
import stat
import tempfile
from functools import cache
from pathlib import Path
from typing import Final

import psutil

from rl_core.run_lock import RunLock, lock_owner

PREFIX: Final = "sightline-"
_OWNER = "owner"


@cache
def own_temporary_folder() -> Path:
    """Make this process, and all processes that it starts from now on, write temporary files into a folder that is
    removed at its end. Also removes the folders that killed processes left. Raises OSError where no folder can be made.
    """
    machine = Path(tempfile.gettempdir())
    if machine.name.startswith(PREFIX):  # of the process that has started this one
        machine = machine.parent
    sweep(machine)
    try:
        folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=machine))
        RunLock(folder / _OWNER).__enter__()  # until this process ends, however it does
    except OSError as error:
        raise OSError(
            f"no folder can be made in {machine} ({error.strerror}): set TMPDIR to a folder with free space"
        ) from None
    # Compiled kernels stay with the machine, since the next process reuses them, and Ray's sockets, whose paths must be
    # short.
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(machine / f"torchinductor_{os.getuid()}"))
    os.environ.setdefault("RAY_TMPDIR", str(machine))
    os.environ["TMPDIR"] = tempfile.tempdir = str(folder)
    atexit.register(_remove, folder, owner=os.getpid())
    return folder


def sweep(machine: Path) -> None:
    """Remove this user's folders of processes that are gone; what a living process owns or uses stays."""
    for folder in sorted(machine.glob(f"{PREFIX}*")):
        if _is_left(folder) and not _is_worked_in(folder):
            shutil.rmtree(folder, ignore_errors=True)


def _is_left(folder: Path) -> bool:
    """Whether this user's process had locked a file in the folder, which has its pid since then, and none does now."""
    try:
        is_ours = stat.S_ISDIR(folder.lstat().st_mode) and folder.lstat().st_uid == os.getuid()
        return is_ours and (folder / _OWNER).stat().st_size > 0 and lock_owner(folder / _OWNER) is None
    except OSError:  # its owner has just ended
        return False


def _is_worked_in(folder: Path) -> bool:
    """Whether a process that the owner started is still there; of another user's the environment is not known."""
    environments = (process.info["environ"] or {} for process in psutil.process_iter(["environ"]))
    return any(environment.get("TMPDIR") == str(folder) for environment in environments)


def _remove(folder: Path, *, owner: int) -> None:
    if os.getpid() == owner:  # a forked child runs this at its end too
        shutil.rmtree(folder, ignore_errors=True)
