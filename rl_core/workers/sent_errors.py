"""Errors of a worker in the form in which they are sent to the run."""

import traceback

from rl_core.distributed.sendable import sendable
from rl_core.workers.messages import Raised


def raised(error: Exception, *, policy_version: int) -> Raised:
    """The message for an error: with its traceback as a note, and with its cause, which pickling would lose."""
    found = sendable(error)
    assert isinstance(found, Exception), "made of an Exception"
    found.add_note(f"In the worker's process:\n{''.join(traceback.format_exception(error))}")
    cause = None if error.__cause__ is None else sendable(error.__cause__)
    return Raised(error=found, cause=cause, policy_version=policy_version)
