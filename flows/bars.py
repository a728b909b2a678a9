"""Progress bars in a terminal, lines in a log."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from rl_core.progress import Advance

_SECONDS_BETWEEN_LINES = 20.0


class TerminalBars:
    """Implements Progress with rich's bars. A finished bar stays, unless it was opened inside another one."""

    def __init__(self, console: Console) -> None:
        self._open = 0
        self._bars = Progress(
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

    @contextmanager
    def bar(self, description: str, total: int) -> Iterator[Advance]:
        """As Progress.bar."""
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


@dataclass(slots=True)
class LogLines:
    """Implements Progress where nobody looks at a terminal: a line every 20 seconds, and one at the end."""

    console: Console

    @contextmanager
    def bar(self, description: str, total: int) -> Iterator[Advance]:
        """As Progress.bar."""
        started = said = time.monotonic()
        done, newest = 0, ""

        def say() -> None:
            seconds = time.monotonic() - started
            self.console.print(f"{description}: {done}/{total} in {seconds:.0f} s {newest}".rstrip(), highlight=False)

        def advance(count: int = 1, figures: str = "") -> None:
            nonlocal done, newest, said
            done += count
            newest = figures or newest
            if time.monotonic() - said > _SECONDS_BETWEEN_LINES:
                said = time.monotonic()
                say()

        try:
            yield advance
        finally:
            say()
