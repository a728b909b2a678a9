"""Prints lines with paths, names and messages on a terminal, without reading them as rich's markup."""

import shlex
from collections.abc import Iterable
from pathlib import Path

from rich.console import Console
from rich.text import Text


def say(console: Console, text: str, *, label: str = "", style: str = "") -> None:
    """Print a line as it is, after a label, which may have markup."""
    line = Text.from_markup(f"{label} ") if label else Text()
    console.print(line.append(text, style=style), highlight=False, soft_wrap=True)


def command_line(words: Iterable[str | Path]) -> str:
    """A command with its words quoted for a shell."""
    return shlex.join(map(str, words))
