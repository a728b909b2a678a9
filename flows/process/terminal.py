"""Who watches a flow of this process: where its bars are drawn, the request to stop it, and how it ended."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

from rl_core.progress import Progress, SilentProgress
from rl_core.run_directory import RunDirectory
from rl_core.stop import StopRequest


@dataclass(kw_only=True, slots=True)
class Watcher:
    """A flow's parameters must be plain values, so what cannot be one is found here.

    Attributes:
        progress: Where bars are drawn.
        stop: The request to stop.
        completed: The flow's body came to its end. Prefect may not be told so any more; the watcher always is.
        error: What ended the body instead.
        run: The run that the flow works on, from when it is known.
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
    """Let the flows called inside the block find the watcher."""
    token = _CURRENT.set(watcher)
    try:
        yield watcher
    finally:
        _CURRENT.reset(token)


def current_watcher() -> Watcher:
    """The watcher of this flow; a silent one in a Prefect worker's process, where nobody watches."""
    return _CURRENT.get() or Watcher()
