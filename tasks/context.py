"""What the tasks of a run share. Tasks get the run's name and look up the rest here, because a session cannot be
pickled."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from prefect import runtime

from rl_core.config.run import RunConfig
from rl_core.run_directory import RunDirectory
from rl_core.stop import StopRequest
from tasks.cache.amendments import data_place
from tasks.cache.manifests import StageManifest, WantedStage, software_before
from tasks.cache.software import Software, made_from
from tasks.cache.stages import ConfigStages, kind_of
from tasks.pages.artifacts import FlowProgress
from tasks.storage.run_storage import RunStorage
from tasks.tracking.run_tracking import PipelineTracking

if TYPE_CHECKING:
    from rl_core.loop.session import Session

_OPEN: dict[str, "RunContext"] = {}


@dataclass(kw_only=True, slots=True)
class RunContext:
    """A run that is being worked on. `software` maps each kind of stage to the software that makes it here, `manifests`
    each finished stage to its manifest, in order. Without `reuse`, no finished stage of another run is taken over.
    `trained_by` is the software that made the training so far; it is empty before the training. `reported_changes` are
    changes of the software that were already reported. `continues_because` says how the attempt before ended."""

    stages: ConfigStages
    run: RunDirectory
    software: Mapping[str, Software]
    reuse: bool
    progress: FlowProgress
    stop: StopRequest
    tracking: PipelineTracking
    storage: RunStorage
    manifests: dict[str, StageManifest] = field(default_factory=dict)
    trained_by: Software = field(default_factory=dict)
    reported_changes: set[str] = field(default_factory=set)
    continues_because: str = ""
    _owned: ExitStack = field(default_factory=ExitStack)
    _session: "Session | None" = None

    @property
    def config(self) -> RunConfig:
        """The resolved config as it was written."""
        return self.stages.config

    @property
    def located(self) -> RunConfig:
        """The same config with every path as it can be read from here."""
        return self.stages.located

    @property
    def name(self) -> str:
        """Name of the run, by which tasks find this context."""
        return self.run.name

    @property
    def session(self) -> "Session":
        """The session that owns the workers. It is opened by its first use, since a run whose stages are all finished
        needs none, and its libraries take seconds to import."""
        if self._session is None:
            with self.progress.wait("load PyTorch and its libraries"):
                from rl_core.loop.session import open_session

            since = data_place(self.stages.amendments)
            opening = open_session(self.located, self.run, progress=self.progress, stop=self.stop, since=since)
            self._session = self._owned.enter_context(opening)
        return self._session

    def wanted(self, stage: str) -> WantedStage:
        """A stage as it would be made now, given the stages before it; `training` is all epochs together."""
        parts = self.stages.parts[stage]
        return WantedStage(
            name=stage,
            digest=self.stages.digests[stage],
            parts=parts,
            software={**self.software.get(kind_of(stage), {}), **made_from(software_before(self.run, parts))},
        )

    def close_session(self) -> None:
        """End the workers; the next use of the session starts them again from the last checkpoint."""
        if self._session is not None:
            self._session.close()


@contextmanager
def registered(context: RunContext) -> Iterator[RunContext]:
    """Let the tasks of this process find the context during a `with` block; its end closes the session too."""
    _OPEN[context.run.name] = context
    try:
        with context._owned:
            yield context
    finally:
        del _OPEN[context.run.name]


def named(text: str) -> Callable[[], str]:
    """Names the task runs of a task: the experiment, then `text` with the task's parameters in its braces."""

    def name() -> str:
        parameters = runtime.task_run.parameters
        return f"{current_context(parameters['run']).config.experiment}: {text.format(**parameters)}"

    return name


def current_context(run_name: str) -> RunContext:
    """The context of a run that is open in this process. Raises LookupError when there is none."""
    if run_name not in _OPEN:
        raise LookupError(f"run {run_name} is not open in this process: tasks run inside the flow that opened it")
    return _OPEN[run_name]
