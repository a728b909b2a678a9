"""Values in a form that messages can repeat."""

from typing import Final

MOST_SHOWN: Final = 120
"""Most characters of a value in a message; its author recognises it by its beginning and end."""


def shortened(text: str, most: int = MOST_SHOWN) -> str:
    r"""`text` on one line: control characters are escaped (`\n`, `\x1b`), and of a long text only the beginning and the
    end are kept, with the number of characters between them."""
    left_out = len(text) - most
    if left_out > 0:
        begin = most * 2 // 3
        return f"{_visible(text[:begin])}... {left_out} more characters ...{_visible(text[begin - most :])}"
    return _visible(text)


def plain_text(text: str) -> str:
    r"""The text in a form that can be encoded: half a surrogate pair, which json.loads accepts, is escaped (`\ud83d`).

    The result is always a plain `str`, even if a user's code passes an object of a subclass.
    """
    return str.encode(text, errors="backslashreplace").decode()


def _visible(text: str) -> str:
    return "".join(character if character.isprintable() else repr(character)[1:-1] for character in text)
