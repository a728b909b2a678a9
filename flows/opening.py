"""Opening a run for writing: its lock, its config and log, signals, its place in Prefect and MLflow."""

import logging
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from prefect import State, runtime
from prefect.context import FlowRunContext
from prefect.states import Cancelled

from flows.flow_runs import mark_abandoned, remember
from flows.request import RunRequest, resolve_request, start_tag
from flows.terminal import current_watcher
from rl_core.config.loading import ConfigError, dump_config
from rl_core.engine.stop import Interrupted, StopRequest
from rl_core.files import atomic_write_text, sweep_temporaries
from rl_core.run_lock import RunLock
from rl_core.tracking.metrics_log import RunLogs
from tasks.artifacts import FlowProgress
from tasks.context import RunContext, registered
from tasks.stages import stage_digests
from tasks.tracking import PipelineTracking

logger = logging.getLogger(__name__)

_LOG_FORMAT = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"


def name_of_run() -> str:
    """Name of a flow run: that of the run it works on."""
    asked = runtime.flow_run.parameters
    try:
        return resolve_request(
            asked["config"], asked["overrides"] or (), runs_dir=asked["runs_dir"], tag=_tag(asked)
        ).run.name
    except ConfigError:
        return f"{runtime.flow_run.flow_name} of {asked['config']}"  # the flow itself says what is wrong with it


@contextmanager
def opened_run(
    config: str,
    overrides: list[str] | None,
    *,
    runs_dir: str,
    tag: str | None = None,
    fresh: bool = False,
    push: str | None = None,
) -> Iterator[RunContext]:
    """Hold the run that a flow was asked for; its tasks find the context that is yielded.

    Raises:
        ConfigError: the config is refused.
        RunLocked: another process writes this run.
        ValueError: a file or data source that the config names cannot be read.
    """
    tag = _tag({"tag": tag, "fresh": fresh})
    request = resolve_request(config, overrides or (), runs_dir=runs_dir, tag=tag, push=push)
    with current_watcher().noting_the_end(), ExitStack() as stack:
        context = _open(request, stack, flow_run_id=str(runtime.flow_run.id))
        try:
            yield context
        except Exception:
            logger.exception("the run failed")
            raise


def stopped(stop: Interrupted) -> State[Any]:
    """How a flow ends that was asked to stop: neither done nor failed, and ready to be continued."""
    return Cancelled(name="Interrupted", message=f"{stop}; the same command continues")


def _tag(asked: Mapping[str, Any]) -> str | None:
    """The tag asked for, or the creation of the flow run: a retry of a scheduled run continues it."""
    tag: str | None = asked.get("tag")
    context = FlowRunContext.get()
    if tag is None and asked.get("fresh") and context is not None and context.flow_run is not None:
        created = context.flow_run.created
        assert created is not None, "a flow run that runs was created"
        tag = start_tag(created)
    return tag


def _open(request: RunRequest, stack: ExitStack, *, flow_run_id: str) -> RunContext:
    run, watcher = request.run, current_watcher()
    stack.enter_context(RunLock(run.lock))
    stack.enter_context(_logging_to(run.log))
    stack.enter_context(_stopped_by_signals(watcher.stop))
    for folder in (run.root, *(path for path in run.root.iterdir() if path.is_dir())):
        sweep_temporaries(folder)  # a killed process leaves them; holding the lock, nobody writes any now
    mark_abandoned(run, current=flow_run_id)
    remember(run, flow_run_id)
    atomic_write_text(run.config, dump_config(request.config))
    logs = RunLogs(run)
    logs.log_event("started", flow_run=flow_run_id)
    tracking = PipelineTracking(request.config, run, log_event=logs.log_event)
    context = RunContext(
        config=request.config,
        run=run,
        digests=stage_digests(request.config),
        reuse=request.reuse,
        progress=FlowProgress(watcher.progress),
        stop=watcher.stop,
        tracking=tracking,
    )
    stack.enter_context(tracking.pipeline_running(flow_run_id))
    return stack.enter_context(registered(context))


@contextmanager
def _logging_to(path: Path) -> Iterator[None]:
    """Append everything that is logged in this process to a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handler = logging.FileHandler(path, encoding="utf-8")
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


@contextmanager
def _stopped_by_signals(stop: StopRequest) -> Iterator[None]:
    """Ctrl-C and SIGTERM ask the run to stop after its step; a second one ends the process at once. Only the main
    thread may set handlers; a flow that runs elsewhere is stopped by whoever started it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {signum: signal.signal(signum, stop.handle) for signum in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)
