"""Values in a form that messages can repeat."""

from typing import Final

MOST_SHOWN: Final = 120
"""Most characters of a value in a message; its author recognises it by its beginning and end."""


def shortened(text: str, most: int = MOST_SHOWN) -> str:
    """The text on one line: control characters are escaped, and of a long text only beginning and end are kept."""
    left_out = len(text) - most
    if left_out > 0:
        begin = most * 2 // 3
        return f"{_visible(text[:begin])}... {left_out} more characters ...{_visible(text[begin - most :])}"
    return _visible(text)


def plain_text(text: str) -> str:
    """The text in a form that can be encoded, as a plain `str`: half a surrogate pair, which json.loads accepts, is
    escaped."""
    return str.encode(text, errors="backslashreplace").decode()


def _visible(text: str) -> str:
    return "".join(character if character.isprintable() else repr(character)[1:-1] for character in text)
