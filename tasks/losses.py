"""Reports at once that workers or a machine of a run were lost."""

import logging
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rl_core.files import atomic_write_text
from rl_core.records.metrics_log import LOST_EVENT, RunLogs, read, readable_steps
from rl_core.run_directory import RunDirectory
from rl_core.wording import duration
from tasks.context import RunContext

if TYPE_CHECKING:
    from rl_core.workers.protocol import LostWorkers

logger = logging.getLogger(__name__)

_SUSPICIOUS: Final = 3
"""So many losses of one machine within `_WINDOW_SECONDS` have a cause on it."""
_WINDOW_SECONDS: Final = 3600.0


@contextmanager
def losses_reported(context: RunContext, stage: str) -> Iterator[None]:
    """If the block ends because workers were lost: a warning, and an event."""
    begun = time.time()
    try:
        yield
    except Exception as error:
        if (lost := lost_with(error)) is not None:
            _report(context, stage, lost, f"{error}", begun=begun)
        raise


def lost_with(error: BaseException | None) -> "LostWorkers | None":
    """The workers whose loss an error is, or is caused by."""
    from rl_core.workers.protocol import WorkerDied

    while error is not None:
        if isinstance(error, WorkerDied):
            return error.lost
        error = error.__cause__
    return None


def _report(context: RunContext, stage: str, lost: "LostWorkers", message: str, *, begun: float) -> None:
    """`begun`: when this attempt at the stage began, in seconds since the epoch."""
    run = context.run
    recorded, is_training = max(readable_steps(run.metrics), default=0), stage.startswith("train")
    written = run.metrics.stat().st_mtime if run.metrics.is_file() else 0.0
    again: list[dict[str, Any]] = []
    if is_training and written > begun:
        saved = max((checkpoint.step for checkpoint in context.session.store.complete()), default=0)
        again = [line for line in read(run.timings) if line["step"] > saved]
    seconds = time.time() - max(begun, written) + sum(line["total_s"] for line in again)
    kept = _keep(run, lost.stacks) if lost.stacks else None
    logs = RunLogs(run)
    logs.log_event(
        LOST_EVENT,
        workers=lost.names,
        machines=list(lost.machines),
        cause=lost.cause,
        stage=stage,
        step=recorded + is_training,
        steps=len(again),
        seconds=round(seconds, 1),
        stacks=kept and str(kept.relative_to(run.root)),
    )
    where = f"step {recorded + 1}" if is_training else stage
    cost = f"{len(again)} finished step(s) are done again, and {duration(seconds)} of work were lost"
    last = f" What was done last is in {kept}." if kept else ""
    logger.warning("%s: %s %s.%s%s", where, message, cost, last, _common_machine(read(run.events)))


def _keep(run: RunDirectory, stacks: str) -> Path:
    """The file in which the stacks are kept from now on."""
    run.losses.mkdir(exist_ok=True)
    file = run.losses / f"{len([*run.losses.iterdir()]) + 1:03d}.txt"
    atomic_write_text(file, f"{stacks}\n")
    return file


def _common_machine(events: list[dict[str, Any]]) -> str:
    """What the losses of the last hour have in common; empty where it is nothing."""
    recent = [
        event for event in events if event["kind"] == LOST_EVENT and event["time"] > time.time() - _WINDOW_SECONDS
    ]
    counts = Counter(machine for event in recent for machine in event["machines"])
    return "".join(
        f" {count} of the {len(recent)} losses of the last hour were on {machine}: look there for a cause (memory, "
        "`dmesg`, its devices), or leave it out of the cluster."
        for machine, count in counts.items()
        if count >= _SUSPICIOUS
    )
