"""Progress bars in a terminal, lines in a log."""

import time
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from threading import Timer

from rich import progress as rich_progress
from rich.console import Console, RenderableType
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Column
from rich.text import Text
from typing_extensions import override

from rl_core.progress import Advance, Now, Progress, Reached

_DRAWN_A_SECOND = 4.0
_SECONDS_BETWEEN_LINES = 30.0
_SPEED_SECONDS = 600.0
"""The time left is estimated from the speed of the last ten minutes, since a step may take some."""

_SHORT_SECONDS = 2.0
"""A shorter wait is not mentioned."""


def progress_on(console: Console) -> AbstractContextManager[Progress]:
    """Bars on a terminal, lines elsewhere."""
    return TerminalBars(console) if console.is_terminal else nullcontext(LogLines(console))


class _Bars(rich_progress.Progress):
    """Bars, and below them what each says is being done now."""

    @override
    def get_renderables(self) -> Iterable[RenderableType]:
        yield from super().get_renderables()
        for task in self.tasks:
            if words := task.fields["now"]:
                yield Text(f"  {words}", style="dim", no_wrap=True, overflow="ellipsis")


class TerminalBars(Progress):
    """Rich's bars. A finished bar stays, unless it was opened inside another one."""

    def __init__(self, console: Console) -> None:
        self._open = 0
        self._bars = _Bars(
            TextColumn("[bold]{task.description}", table_column=Column()),  # which is wrapped where there is no room
            BarColumn(bar_width=32),
            TextColumn("[progress.download]{task.fields[place]}"),
            TimeElapsedColumn(table_column=Column(no_wrap=True)),
            TimeRemainingColumn(table_column=Column(no_wrap=True)),
            TextColumn("[dim]{task.fields[figures]}"),
            console=console,
            refresh_per_second=_DRAWN_A_SECOND,
            speed_estimate_period=_SPEED_SECONDS,
        )

    def __enter__(self) -> "TerminalBars":
        self._bars.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._bars.stop()

    @override
    @contextmanager
    def bar(self, description: str, total: int | None) -> Iterator[Advance]:
        of = "?" if total is None else f"{total}"
        task = self._bars.add_task(description, total=total, figures="", now="", place=f"0/{of}")
        self._open += 1
        reached = Reached()

        def show() -> None:
            units = reached.units
            if total is not None:
                units = min(units, total if reached.done >= total else total - 0.5)  # rich ends a bar that is full
            place = f"{reached.done:{len(of)}}/{of}"
            self._bars.update(task, completed=units, figures=reached.figures, now=reached.now.words, place=place)

        def advance(count: int = 1, figures: str = "", now: Now | None = None) -> None:
            reached.advance(count, figures, now)
            show()

        try:
            yield advance
        finally:
            reached.now = Now()
            show()
            self._open -= 1
            if self._open:
                self._bars.remove_task(task)
            else:
                self._bars.stop_task(task)

    @override
    @contextmanager
    def wait(self, description: str) -> Iterator[None]:
        """A moving bar with the time, and a line at the end of a long wait."""
        task = self._bars.add_task(description, total=None, figures="", now="", place="")
        started = time.monotonic()
        try:
            yield
        finally:
            self._bars.remove_task(task)
            _print_long_wait(self._bars.console, description, time.monotonic() - started)


@dataclass(slots=True)
class LogLines(Progress):
    """Where there is no terminal: a line every 30 seconds, and one at the end."""

    console: Console

    @override
    @contextmanager
    def bar(self, description: str, total: int | None) -> Iterator[Advance]:
        started = printed_at = time.monotonic()
        reached, of = Reached(), "" if total is None else f"/{total}"

        def print_now() -> None:
            seconds = time.monotonic() - started
            words = ", ".join(filter(None, (reached.figures, reached.now.words)))
            line = f"{description}: {reached.done}{of} in {seconds:.0f} s {words}".rstrip()
            self.console.print(line, highlight=False, soft_wrap=True)

        def advance(count: int = 1, figures: str = "", now: Now | None = None) -> None:
            nonlocal printed_at
            reached.advance(count, figures, now)
            if time.monotonic() - printed_at > _SECONDS_BETWEEN_LINES:
                printed_at = time.monotonic()
                print_now()

        try:
            yield advance
        finally:
            reached.now = Now()
            print_now()

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
            _print_long_wait(self.console, description, time.monotonic() - started)


def _print_long_wait(console: Console, description: str, seconds: float) -> None:
    if seconds >= _SHORT_SECONDS:
        console.print(f"[dim]{description}: {seconds:.0f} s[/dim]", highlight=False)
