"""Connects a flow with the code that called it in this process: its bars, the request to stop it, and how it ended."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

from rl_core.progress import Progress, SilentProgress
from rl_core.run_directory import RunDirectory
from rl_core.stop import StopRequest


@dataclass(kw_only=True, slots=True)
class Watcher:
    """What a flow and its caller share beyond parameters, which must be plain values.

    Attributes:
        progress: Where bars are drawn.
        stop: The request to stop.
        completed: Whether the flow's body was completed; this is noted even if Prefect's server is away.
        error: The error that ended the body.
        run: The run that the flow works on, once it is known.
    """

    progress: Progress = field(default_factory=SilentProgress)
    stop: StopRequest = field(default_factory=StopRequest)
    completed: bool = False
    error: BaseException | None = None
    run: RunDirectory | None = None

    @contextmanager
    def noting_the_end(self) -> Iterator[None]:
        """Note how the block ends."""
        try:
            yield
        except BaseException as error:
            self.error = error
            raise
        self.completed = True


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
