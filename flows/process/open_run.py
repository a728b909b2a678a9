"""Opens a run for writing: its lock, its config and log, signals, its pages in Prefect and MLflow."""

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

from prefect import State, runtime
from prefect.context import FlowRunContext

from flows.process.failed_flows import ended_early
from flows.process.flow_runs import flow_run_name, mark_abandoned, planned_start, remembered
from flows.process.late_end import end_reported_later
from flows.process.temporary_folder import own_temporary_folder
from flows.process.watcher import Watcher, current_watcher
from flows.process.worker_output import outlive_the_reader
from flows.request import ResolvedRun, RunRequest, resume_command
from rl_core.config.key_kinds import LAST_BITS, changed_keys, is_of
from rl_core.config.loading import dump_config
from rl_core.config.run import RunConfig
from rl_core.families.own import own_family
from rl_core.files import atomic_write_text, sweep_temporaries
from rl_core.records.metrics_log import RunLogs, readable_steps
from rl_core.run_directory import RunDirectory
from rl_core.run_lock import RunLock
from rl_core.stop import Interrupted, stopped_by_signals
from tasks.attempts import how_it_ended
from tasks.cache.kept_files import keep_files, started_config
from tasks.cache.software import software_of_stages
from tasks.cache.stages import ConfigStages
from tasks.context import RunContext, registered
from tasks.pages.artifacts import FlowProgress
from tasks.resuming.amending import stages_taken_up
from tasks.run_pages import show_links
from tasks.storage.run_storage import RunStorage
from tasks.tracking.run_tracking import PipelineTracking

logger = logging.getLogger(__name__)

Result = TypeVar("Result")

_LOG_FORMAT = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"


def name_of_run() -> str:
    """Name of a flow run: the experiment, the planned start, the overrides, and the rest of the run's name."""
    request = RunRequest.of_parameters(runtime.flow_run.parameters)
    try:
        resolved = request.resolved(start())
    except ValueError:
        what = f"{request.resume or request.config}"
        return flow_run_name(what, start(), overrides=request.overrides)  # the flow itself says what is wrong
    experiment = resolved.config.experiment
    rest = resolved.run.name.removeprefix(f"{experiment}-")
    return flow_run_name(experiment, start(), rest, overrides=request.overrides)


def in_run(
    request: RunRequest, body: Callable[[RunContext], Result], *, is_frozen: bool = False
) -> Result | State[Any]:
    """Open the run that a flow was asked for, and call `body` with its context, which tasks find too. With `is_frozen`,
    the files that the config names are not read again; the run is taken as it was.

    Returns the result of `body`. An exception becomes the final state to return from the flow, so that the flow run's
    page shows its cause and how to continue: ConfigError (the config is refused), RunLocked (another process writes
    this run), ValueError (a file that the config names cannot be read), and others.
    """
    watcher = current_watcher()
    with watcher, end_reported_later(flow_run_id(), is_of_worker=outlive_the_worker()):
        resolved = request.resolved(start(), is_frozen=is_frozen)
        watcher.run = resolved.run
        with ExitStack() as stack:
            context = _open(resolved, watcher, stack, flow_run_id=str(flow_run_id()), is_frozen=is_frozen)
            try:
                return body(context)
            except Interrupted as stopped:
                logger.info("%s", stopped)
                raise
            except Exception:
                logger.exception("the run failed")
                raise
    return ended_early(watcher, flow_run_id())


def flow_run_id() -> UUID:
    """The flow run that this code belongs to."""
    return UUID(str(runtime.flow_run.id))


def outlive_the_worker() -> bool:
    """In a process that a worker has started, continue when the worker is killed. Returns whether this is one."""
    context = FlowRunContext.get()
    is_of_worker = context is not None and context.flow_run is not None and context.flow_run.deployment_id is not None
    if is_of_worker:
        outlive_the_reader()
    return is_of_worker


def start() -> datetime:
    """The planned start of the flow run that this code belongs to."""
    context = FlowRunContext.get()
    assert context is not None and context.flow_run is not None, "called inside a flow"
    return planned_start(context.flow_run)


def _open(
    resolved: ResolvedRun, watcher: Watcher, stack: ExitStack, *, flow_run_id: str, is_frozen: bool
) -> RunContext:
    run = resolved.run
    stack.enter_context(RunLock(run.lock))
    own_temporary_folder()
    stack.enter_context(_logging_to(run.log))
    stack.enter_context(stopped_by_signals(watcher.stop))
    for folder in (run.root, *(path for path in run.root.iterdir() if path.is_dir())):
        sweep_temporaries(folder)  # a killed process leaves them; while the lock is held, no other process writes any
    before = how_it_ended(run)
    mark_abandoned(run, current=flow_run_id)
    stack.enter_context(remembered(run, flow_run_id))
    logs = RunLogs(run)
    storage = RunStorage.of_config(resolved.config, run, log_event=logs.log_event)
    storage.bring_beginnings()
    atomic_write_text(run.config, dump_config(resolved.config))
    files = resolved.files(is_frozen=is_frozen)
    progress = FlowProgress(watcher.progress)
    watcher.stop.doing = progress.doing
    with watcher.stop.breaking_off(), watcher.progress.wait("check whether the data has changed"):
        stages = stages_taken_up(
            run, partial(ConfigStages.of, resolved.config, files), keeps_training=resolved.keeps_training
        )
        _record_changes(run, resolved.config, logs)
        keep_files(run, resolved.config, files)
        software = software_of_stages(resolved.config, files)
    logs.log_event("started", flow_run=flow_run_id)
    if resolved.predecessor is not None:
        logs.log_event("new-run", run=resolved.predecessor.name, changed=resolved.differs, message=resolved.why_new)
    stack.callback(storage.close)
    shown = resolved.config.model_copy(update={"tracking": stages.located.tracking})
    tracking = PipelineTracking(shown, run, log_event=logs.log_event)
    context = RunContext(
        stages=stages,
        run=run,
        software=software,
        reuse=resolved.reuse,
        progress=progress,
        stop=watcher.stop,
        tracking=tracking,
        storage=storage,
        continues_because=before,
    )
    resume = resume_command(run)
    stack.enter_context(tracking.pipeline_running(flow_run_id, resume=resume))
    show_links(context, resume=resume)
    stack.enter_context(own_family(stages.located.model.family))
    return stack.enter_context(registered(context))


def _record_changes(run: RunDirectory, config: RunConfig, logs: RunLogs) -> None:
    """Record which keys have changed since the run was started last, with the step after which the change holds."""
    before = started_config(run)
    changes = {} if before is None else {key: (old, new) for key, old, new in changed_keys(before, config)}
    if not changes:
        return
    step = max(readable_steps(run.metrics), default=0)
    bits = "; the last bits of the numbers differ from here on" if any(is_of(LAST_BITS, key) for key in changes) else ""
    words = ", ".join(f"{key} {old} -> {new}" for key, (old, new) in changes.items())
    message = f"after step {step} the run goes on with {words}{bits}"
    logs.log_event("config-changed", step=step, changes=changes, message=message)
    logger.info("%s", message)


class _RunLog(logging.FileHandler):
    """A file that drops what it cannot write: a full disk is reported once, and not by a traceback for each line."""

    def handleError(self, record: logging.LogRecord) -> None:
        if not isinstance(sys.exception(), OSError):
            super().handleError(record)

    def close(self) -> None:
        with suppress(OSError):
            super().close()


@contextmanager
def _logging_to(path: Path) -> Iterator[None]:
    """Append all log messages of this process to a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handler = _RunLog(path, encoding="utf-8")
    handler.setFormatter(logging.Formatter(_LOG_FORMAT))
    root = logging.getLogger()
    root.addHandler(handler)
    for name in ("flows", "tasks", "rl_core"):
        logging.getLogger(name).setLevel(logging.INFO)
    try:
        yield
    finally:
        root.removeHandler(handler)
        handler.close()
