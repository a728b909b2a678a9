"""Errors in a form in which another process can get them."""

import pickle
from contextlib import suppress


def sendable(error: BaseException) -> BaseException:
    """The error itself if it can be pickled, else an error of its nearest built-in base class with the same text."""
    with suppress(Exception):  # an error may be made of anything
        sent = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own
        if type(sent) is type(error):
            return error
    text = f"{type(error).__name__}: {error}"
    for base in type(error).__mro__:
        if base.__module__ == "builtins":
            with suppress(TypeError):  # UnicodeDecodeError and ExceptionGroup are made of more than a text
                found: BaseException = base(text)
                return found
    raise AssertionError("BaseException itself takes a text")
