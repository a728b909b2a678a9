"""Prints lines with paths, names and messages on a terminal, without reading them as rich's markup."""

import shlex
from collections.abc import Collection, Iterable
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text


def say(console: Console, text: str, *, label: str = "", style: str = "") -> None:
    """Print a line as it is, after a label, which may have markup."""
    line = Text.from_markup(f"{label} ") if label else Text()
    console.print(line.append(text, style=style), highlight=False, soft_wrap=True)


def table_of(*columns: str, title: str | None = None, right: Collection[str] = (), dim: str = "") -> Table:
    """A table without rows; the columns `right` are aligned to the right, and one may be dim. Words are never cut."""
    table = Table(title=title, title_justify="left")
    for column in columns:
        style = "dim" if dim and column == dim else None
        table.add_column(column, justify="right" if column in right else "left", overflow="fold", style=style)
    return table


def command_line(words: Iterable[str | Path]) -> str:
    """A command with its words quoted for a shell."""
    return shlex.join(map(str, words))
