"""Lines on a terminal that hold what others named: paths, runs, messages. None of it is read as rich's markup."""

import shlex
from collections.abc import Iterable
from pathlib import Path

from rich.console import Console
from rich.text import Text


def say(console: Console, text: str, *, label: str = "", style: str = "") -> None:
    """Print a line as it is, after a label in markup of our own."""
    line = Text.from_markup(f"{label} ") if label else Text()
    console.print(line.append(text, style=style), highlight=False, soft_wrap=True)


def command_line(words: Iterable[str | Path]) -> str:
    """A command that a shell takes as it is, whatever the names in it are."""
    return shlex.join(map(str, words))
