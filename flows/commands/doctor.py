"""`sightline doctor`: corrects what Prefect says about runs whose process was killed."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console
from rich.text import Text

from flows.printing import say, table_of
from flows.request import resume_command
from rl_core.run_directory import RunDirectory
from rl_core.run_lock import RunLock, RunLocked, lock_owner
from tasks.housekeeping.overview import runs_below


def examine(runs_dir: Path, console: Console) -> None:
    """Show each run, and mark flow runs whose process is gone. Raises PrefectAway where Prefect does not answer."""
    table = table_of("run", "state", "to continue")
    runs = runs_below(runs_dir)
    for run in runs:
        state = state_of(run)
        table.add_row(*map(Text, (run.name, state, resume_command(run) if state == "unfinished" else "")))
    console.print(table)
    for marked in _mark(runs):
        say(console, marked)


def state_of(run: RunDirectory) -> str:
    """Whether a run is being written, finished or unfinished."""
    try:
        owner = lock_owner(run.lock)
    except OSError as error:
        return f"unreadable: {error}"
    if owner is not None:
        return f"written by the process with pid {owner}"
    return "finished" if run.summary.is_file() else "unfinished"


def _mark(runs: Sequence[RunDirectory]) -> Iterator[str]:
    """Mark the flow runs of these runs. Yields a sentence about each flow run that was marked."""
    if not runs:
        return
    # Imported here: Prefect and its server take seconds to start.
    from flows.process.embedded_server import reached_prefect
    from flows.process.flow_runs import mark_abandoned

    with reached_prefect():
        for run in runs:
            # The lock is held while Prefect is asked, so that no other process starts the run meanwhile. A process that
            # holds it already has asked Prefect itself.
            try:
                with RunLock(run.lock):
                    marked = mark_abandoned(run)
            except RunLocked:
                continue
            except OSError as error:
                marked = f"{run.name} cannot be locked: {error}"
            if marked:
                yield marked
