"""Progress bars in a terminal, lines in a log."""

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from threading import Timer

from rich import progress as rich_progress
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from typing_extensions import override

from rl_core.progress import Advance, Progress

_SECONDS_BETWEEN_LINES = 20.0
_SHORT_SECONDS = 2.0
"""A shorter wait is not mentioned."""


def progress_on(console: Console) -> AbstractContextManager[Progress]:
    """Bars on a terminal, lines elsewhere."""
    return TerminalBars(console) if console.is_terminal else nullcontext(LogLines(console))


class TerminalBars(Progress):
    """Rich's bars. A finished bar stays, unless it was opened inside another one."""

    def __init__(self, console: Console) -> None:
        self._open = 0
        self._bars = rich_progress.Progress(
            TextColumn("[bold]{task.description}"),
            BarColumn(bar_width=32),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("[dim]{task.fields[figures]}"),
            console=console,
        )

    def __enter__(self) -> "TerminalBars":
        self._bars.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._bars.stop()

    @override
    @contextmanager
    def bar(self, description: str, total: int | None) -> Iterator[Advance]:
        task = self._bars.add_task(description, total=total, figures="")
        self._open += 1

        def advance(count: int = 1, figures: str = "") -> None:
            self._bars.advance(task, count)
            if figures:
                self._bars.update(task, figures=figures)

        try:
            yield advance
        finally:
            self._open -= 1
            if self._open:
                self._bars.remove_task(task)
            else:
                self._bars.stop_task(task)

    @override
    @contextmanager
    def wait(self, description: str) -> Iterator[None]:
        """A moving bar with the time, and a line at the end of a long wait."""
        task = self._bars.add_task(description, total=None, figures="")
        started = time.monotonic()
        try:
            yield
        finally:
            self._bars.remove_task(task)
            _say_long(self._bars.console, description, time.monotonic() - started)


@dataclass(slots=True)
class LogLines(Progress):
    """Where there is no terminal: a line every 20 seconds, and one at the end."""

    console: Console

    @override
    @contextmanager
    def bar(self, description: str, total: int | None) -> Iterator[Advance]:
        started = printed_at = time.monotonic()
        done, newest, of = 0, "", "" if total is None else f"/{total}"

        def say() -> None:
            seconds = time.monotonic() - started
            self.console.print(f"{description}: {done}{of} in {seconds:.0f} s {newest}".rstrip(), highlight=False)

        def advance(count: int = 1, figures: str = "") -> None:
            nonlocal done, newest, printed_at
            done += count
            newest = figures or newest
            if time.monotonic() - printed_at > _SECONDS_BETWEEN_LINES:
                printed_at = time.monotonic()
                say()

        try:
            yield advance
        finally:
            say()

    @override
    @contextmanager
    def wait(self, description: str) -> Iterator[None]:
        """A line when the wait becomes long, and one at its end."""
        started = time.monotonic()
        timer = Timer(_SHORT_SECONDS, lambda: self.console.print(f"{description} ...", highlight=False))
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            _say_long(self.console, description, time.monotonic() - started)


def _say_long(console: Console, description: str, seconds: float) -> None:
    if seconds >= _SHORT_SECONDS:
        console.print(f"[dim]{description}: {seconds:.0f} s[/dim]", highlight=False)
