"""An error that cannot be pickled is sent as one that says the same."""

import pickle
import threading

import pytest

from rl_core.distributed.sendable import sendable


class WithLock(OSError):
    """Cannot be pickled."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.lock = threading.Lock()


class TwoArguments(ValueError):
    """Can be pickled, but not read again: only the text is kept."""

    def __init__(self, one: str, other: str) -> None:
        super().__init__(f"{one} {other}")


def test_an_error_that_pickles_is_sent_as_it_is():
    error = KeyError("a key")
    assert sendable(error) is error


@pytest.mark.parametrize(
    ("error", "sent"),
    [
        (WithLock("full"), OSError("WithLock: full")),
        (TwoArguments("one", "other"), ValueError("TwoArguments: one other")),
        (ExceptionGroup("both", [WithLock("full")]), Exception("ExceptionGroup: both (1 sub-exception)")),
    ],
)
def test_any_other_is_sent_as_its_nearest_built_in_class(error, sent):
    found = pickle.loads(pickle.dumps(sendable(error)))
    assert (type(found), str(found)) == (type(sent), str(sent))
