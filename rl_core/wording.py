"""Values as a message may repeat them."""

from typing import Final

MOST_SHOWN: Final = 120
"""Characters of a value that a message repeats: who wrote it knows it by its beginning and end."""


def shortened(text: str, most: int = MOST_SHOWN) -> str:
    r"""`text` on one line: characters that a terminal would obey are spelt out (`\n`, `\x1b`), and of a long one
    beginning and end are left, with the number of characters between them."""
    left_out = len(text) - most
    if left_out > 0:
        begin = most * 2 // 3
        return f"{_visible(text[:begin])}... {left_out} more characters ...{_visible(text[begin - most :])}"
    return _visible(text)


def plain_text(text: str) -> str:
    r"""The text as any file can hold it, with half a surrogate pair (json.loads lets one through) spelt out: `\ud83d`.

    It is `str` itself: an object of a subclass of a stranger's is not handed on.
    """
    return str.encode(text, errors="backslashreplace").decode()


def _visible(text: str) -> str:
    return "".join(character if character.isprintable() else repr(character)[1:-1] for character in text)
