"""Connects a flow with the code that called it in this process: its bars, the request to stop it, and how it ended."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from rl_core.progress import Progress, SilentProgress
from rl_core.run_directory import RunDirectory
from rl_core.stop import StopRequest


@dataclass(kw_only=True, slots=True)
class Watcher:
    """What a flow and its caller share beyond parameters, which must be plain values.

    `with watcher:` around the body of the flow notes how it ends, even if Prefect's server is away. An Exception is
    caught, so that the flow can report it. `command` continues a set of runs, once there is something to continue.
    """

    progress: Progress = field(default_factory=SilentProgress)
    stop: StopRequest = field(default_factory=StopRequest)
    completed: bool = False
    error: BaseException | None = None
    run: RunDirectory | None = None
    command: str | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        self.completed, self.error = error is None, error
        return isinstance(error, Exception)


_CURRENT: ContextVar[Watcher | None] = ContextVar("watcher", default=None)


@contextmanager
def watched_by(watcher: Watcher) -> Iterator[Watcher]:
    """Flows that are called inside the block find this watcher."""
    token = _CURRENT.set(watcher)
    try:
        yield watcher
    finally:
        _CURRENT.reset(token)


def current_watcher() -> Watcher:
    """The watcher of this flow; a silent one in the process of a Prefect worker, where there is no caller."""
    return _CURRENT.get() or Watcher()
