"""Values and durations as messages and pages show them."""

import re
import signal
from collections.abc import Sequence
from datetime import timedelta
from typing import Final

MOST_SHOWN: Final = 120
"""Most characters of a value in a message; its author recognises it by its beginning and end."""

_LONGEST_STATEMENT: Final = 300

_OF_A_STACK: Final = re.compile(
    r"^\s|^(Traceback|Thread|Current thread|Stack|Extension modules)\b|@ +0x|\(most recent call"
)


def duration(seconds: float) -> str:
    """ "64 ms", "0.4 s", "42 s", "3 min 20 s", "2 h 05 min"."""
    if seconds < 0.1:
        return f"{1000 * seconds:.0f} ms"
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def exit_words(status: int) -> str:
    """How a process ended, by its exit status, which is negative after a signal: "exit code 3", "signal SIGKILL"."""
    if status >= 0:
        return f"exit code {status}"
    try:
        return f"signal {signal.Signals(-status).name}"
    except ValueError:
        return f"signal {-status}"


def age(since: timedelta) -> str:
    """How long ago something was: "just now", "12 min", "5 h", "3 days", "8 weeks"."""
    minutes = since.total_seconds() / 60
    if minutes < 1:
        return "just now"
    for limit, unit, name in ((60, 1, "min"), (48 * 60, 60, "h"), (21 * 1440, 1440, "days")):
        if minutes < limit:
            return f"{int(minutes // unit)} {name}"
    return f"{int(minutes // (7 * 1440))} weeks"


def shortened(text: str, most: int = MOST_SHOWN) -> str:
    """The text on one line: control characters are escaped, and of a long text only beginning and end are kept."""
    left_out = len(text) - most
    if left_out > 0:
        begin = most * 2 // 3
        return f"{_visible(text[:begin])}... {left_out} more characters ...{_visible(text[begin - most :])}"
    return _visible(text)


def last_statement(printed: str) -> str:
    """The last line of what a process has printed that belongs to no stack, for a sentence; empty if there is none."""
    lines = (line for line in reversed(printed.splitlines()) if line.strip() and not _OF_A_STACK.search(line))
    return shortened(next(lines, ""), _LONGEST_STATEMENT)


def first_of(words: Sequence[str]) -> str:
    """The first four: `one, two, three, four and 3 more`."""
    more = f" and {len(words) - 4} more" if len(words) > 4 else ""
    return f"{', '.join(words[:4])}{more}"


def plain_text(text: str) -> str:
    """The text in a form that can be encoded, as a plain `str`: half a surrogate pair, which json.loads accepts, is
    escaped."""
    return str.encode(text, errors="backslashreplace").decode()


def _visible(text: str) -> str:
    return "".join(character if character.isprintable() else repr(character)[1:-1] for character in text)
