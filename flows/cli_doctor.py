"""`sightline doctor`: what the runs' folders and Prefect say of each other, set right after a process was killed."""

from pathlib import Path

from rich.console import Console
from rich.table import Table

from flows.embedded_server import reached_prefect
from flows.flow_runs import mark_abandoned
from flows.request import resume_command
from rl_core.run_directory import RunDirectory
from rl_core.run_lock import RunLock, RunLocked
from tasks.housekeeping.overview import runs_below


def examine(runs_dir: Path, console: Console) -> None:
    """Mark flow runs whose process is gone, and show how each run stands.

    Raises:
        PrefectAway: Prefect's server does not answer.
    """
    table = Table()
    for column in ("run", "state", "to continue"):
        table.add_column(column, overflow="fold")
    with reached_prefect():
        for run in runs_below(runs_dir):
            state, marked = standing_of(run)
            table.add_row(run.name, state, resume_command(run) if state == "unfinished" else "")
            if marked:
                console.print(marked, highlight=False)
    console.print(table)


def standing_of(run: RunDirectory) -> tuple[str, str | None]:
    """Whether a run is being written, finished or unfinished; and what was marked, when its process is gone.

    The lock is held for the moment in which Prefect is asked, so that nobody starts the run in between.
    """
    try:
        with RunLock(run.lock):
            marked = mark_abandoned(run)
    except RunLocked as locked:
        return f"written by the process with pid {locked.owner}", None
    return "finished" if run.summary.is_file() else "unfinished", marked
