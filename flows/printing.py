"""Prints lines with paths, names and messages on a terminal, without reading them as rich's markup."""

import errno
import os
import shlex
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.table import Column, Table
from rich.text import Text

from rl_core.files import DiskFull
from rl_core.redaction import redact
from rl_core.wording import shortened

if TYPE_CHECKING:
    from rl_core.rewards.trial import TriedForm

_WIDEST = 10_000


def print_line(console: Console, text: str, *, label: str = "", style: str = "") -> None:
    """Print a line as it is, after a label, which may have markup."""
    line = Text.from_markup(f"{label} ") if label else Text()
    console.print(line.append(text, style=style), highlight=False, soft_wrap=True)


class FittedTable(Table):
    """A table of the terminal's width at most, in which no word is broken, such as the name of a run: where the longest
    words leave no room for all columns, each row is printed as lines, one for each of its cells."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Of each column, the longest word has room; the columns share the rest."""
        taken = 3 * len(self.columns) + 1  # by lines and spaces between the columns
        sizes = [self._size(column, console, options) for column in self.columns]
        spare = options.max_width - taken - sum(size.minimum for size in sizes)
        if spare < 0:
            yield from self._lines()
            return
        wanted = sum(size.span for size in sizes)
        if wanted > spare:
            for column, size in zip(self.columns, sizes, strict=True):
                column.width = size.minimum + spare * size.span // wanted
        yield from super().__rich_console__(console, options)

    def _size(self, column: Column, console: Console, options: ConsoleOptions) -> Measurement:
        wide = options.update_width(_WIDEST)
        shown = [column.header] if self.show_header else []
        sizes = [Measurement.get(console, wide, cell) for cell in (*shown, *column.cells)]
        widest = max((size.maximum for size in sizes), default=0)
        return Measurement(widest if column.no_wrap else max((size.minimum for size in sizes), default=0), widest)

    def _lines(self) -> RenderResult:
        if self.title:
            yield self.title
        for row in zip(*(column.cells for column in self.columns), strict=True):
            for place, (column, cell) in enumerate(zip(self.columns, row, strict=True)):
                name = Text.from_markup(f"{'  ' * (place > 0)}{column.header} ", style="dim")
                text = Text.from_markup(cell) if isinstance(cell, str) else cell
                yield name + text


def table_of(*columns: str, title: str | None = None, right: Collection[str] = (), dim: str = "") -> FittedTable:
    """A table without rows; the columns `right` are aligned to the right, and one may be dim. Words are never cut. If
    no column is named, there is no line of names."""
    table = FittedTable(title=title, title_justify="left", show_header=bool(columns))
    for column in columns:
        style = "dim" if dim and column == dim else None
        table.add_column(column, justify="right" if column in right else "left", overflow="fold", style=style)
    return table


def command_line(words: Iterable[str | Path]) -> str:
    """A command with its words quoted for a shell."""
    return shlex.join(map(str, words))


_LOOKED_AT_BYTES = 64 * 1024
_FULL = (errno.ENOSPC, errno.EDQUOT)


def cause_of(error: BaseException | None) -> str:
    """The message of an error, without secrets. An error that a person cannot correct is shown with its type."""
    expected = isinstance(error, ValueError | OSError) or type(error).__module__.startswith("rl_core.")
    message, advice = f"{error}" if expected else f"{type(error).__name__}: {error}", ""
    if isinstance(error, OSError) and error.strerror is not None:  # without the number of the error
        file = f"{shortened(os.fsdecode(error.filename))}: " if isinstance(error.filename, str | bytes) else ""
        message = f"{file}{error.strerror}"
    if isinstance(error, OSError) and error.errno in _FULL and not isinstance(error, DiskFull):
        advice = ": free some space on the run's disk and start again; nothing that was finished is lost"
    return redact(message + advice)


def last_lines(printed: BinaryIO, count: int) -> list[str]:
    """The last lines of a file that a process has written, without secrets and empty lines."""
    start = max(0, printed.seek(0, os.SEEK_END) - _LOOKED_AT_BYTES)
    printed.seek(start)
    text = printed.read().decode(errors="replace")
    whole = text.partition("\n")[2] if start else text  # half of a secret would not be recognised
    return [line.rstrip() for line in redact(whole).splitlines() if line.strip()][-count:]


def print_trial_table(table: "Sequence[TriedForm]", console: Console) -> None:
    """Print a line for each form of a response, below the name of its reward where there are several."""
    rewards = dict.fromkeys(form.reward for form in table)
    for reward in rewards:
        if len(rewards) > 1:
            print_line(console, f"  {reward}")
        for form in table:
            if form.reward == reward:
                mean = "no score" if form.overall is None else f"{form.overall:.2g}"
                print_line(console, f"  {form.name:28} {form.right} of {form.tried} right, overall {mean}")
