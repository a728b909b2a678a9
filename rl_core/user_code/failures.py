"""Exceptions of user code, put into words."""

import traceback
from pathlib import Path

from rl_core.redaction import redact
from rl_core.wording import plain_text

_LONGEST = 2000
"""Characters of an exception's text that are kept; it may quote the whole response of a server."""


def failure_text(error: BaseException, folder: Path | None) -> str:
    """An exception of user code as a text of limited length that any file can hold. It ends with the innermost line
    in `folder` that the exception passed."""
    try:
        message = f"{type(error).__name__}: {error}"
    except BaseException:  # noqa: BLE001 - a stranger's exception may fail to describe itself
        message = f"{type(error).__name__}, whose text cannot be made"
    text = redact(message)  # a client's error may repeat the key that it was refused with
    cut = text if len(text) <= _LONGEST else f"{text[:_LONGEST]}... (of {len(text)} characters)"
    return plain_text(cut) + _place(error, folder)


def _place(error: BaseException, folder: Path | None) -> str:
    if folder is None:
        return ""
    places = [
        f" ({path.relative_to(folder)} line {line})"
        for frame, line in traceback.walk_tb(error.__traceback__)
        if (path := Path(frame.f_code.co_filename)).is_relative_to(folder)
    ]
    return places[-1] if places else ""
