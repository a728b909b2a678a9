"""Turns exceptions into messages for people."""

import errno
import os

from rl_core.files import DiskFull
from rl_core.redaction import redact
from rl_core.wording import shortened

_FULL = (errno.ENOSPC, errno.EDQUOT)


def cause_of(error: BaseException | None) -> str:
    """The message of an error, without secrets. An error that a person cannot correct is shown with its type."""
    expected = isinstance(error, ValueError | OSError) or type(error).__module__.startswith("rl_core.")
    message = _system_message(error) if isinstance(error, OSError) else f"{error}"
    return redact((message if expected else f"{type(error).__name__}: {error}") + _advice(error))


def _system_message(error: OSError) -> str:
    """The system's message without its number, after the name of the file if there is one."""
    if error.strerror is None:
        return f"{error}"
    file = f"{shortened(os.fsdecode(error.filename))}: " if isinstance(error.filename, str | bytes) else ""
    return f"{file}{error.strerror}"


def _advice(error: BaseException | None) -> str:
    """Advice for a full disk, an error that often names no file; empty for other errors."""
    if not isinstance(error, OSError) or isinstance(error, DiskFull) or error.errno not in _FULL:
        return ""
    return ": free some space on the run's disk and start again; nothing that was finished is lost"
