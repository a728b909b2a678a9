"""Why something ended, in words for people."""

import errno

from rl_core.checkpoints.disk import DiskFull
from rl_core.redaction import redact

_FULL = (errno.ENOSPC, errno.EDQUOT)


def cause_of(error: BaseException | None) -> str:
    """The message alone for what a person can change; its kind too for what nobody expected. Without secrets."""
    expected = isinstance(error, ValueError | OSError) or type(error).__module__.startswith("rl_core.")
    return redact((f"{error}" if expected else f"{type(error).__name__}: {error}") + _advice(error))


def _advice(error: BaseException | None) -> str:
    """What the system says of a disk that fills up in the middle of a write, which is often without a name."""
    if not isinstance(error, OSError) or isinstance(error, DiskFull) or error.errno not in _FULL:
        return ""
    return ": free some on the run's disk and start again; nothing that was finished is lost"
