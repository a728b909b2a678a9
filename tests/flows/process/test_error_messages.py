"""What a person reads when something ended."""

import errno
from pathlib import Path

import pytest

from flows.printing import cause_of
from rl_core.files import DiskFull


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_disk_that_fills_up_in_a_write_comes_with_what_to_do(number: int) -> None:
    message = cause_of(OSError(number, "No room"))
    assert message.startswith("No room: free some space on the run's disk and start again")


def test_a_full_disk_that_was_foreseen_keeps_its_own_message() -> None:
    full = DiskFull(Path("runs"), bytes_needed=2 << 30, bytes_free=1 << 30)
    assert cause_of(full) == full.strerror


def test_an_unexpected_error_is_named_with_its_type() -> None:
    assert cause_of(KeyError("step")) == "KeyError: 'step'"
    assert cause_of(OSError(errno.EACCES, "Permission denied", "runs")) == "runs: Permission denied"
