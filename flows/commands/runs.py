"""`sightline runs` and `sightline clean`: an overview of all runs, and the removal of runs that a rule chooses."""

from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console
from rich.filesize import decimal
from rich.markup import escape

from flows.printing import print_line, table_of
from flows.reproducing import needed_runs
from rl_core.wording import age
from tasks.housekeeping.overview import RunOverview, RunStatus, overviews
from tasks.housekeeping.removal import Cleaning, Rule, carry_out_cleaning, plan_cleaning, size_on_disk

_COLOURS = {
    RunStatus.RUNNING: "cyan",
    RunStatus.FINISHED: "green",
    RunStatus.FAILED: "red",
    RunStatus.CRASHED: "red",
    RunStatus.UNREADABLE: "red",
}
_LONGEST_REMARK = 100


def print_runs(runs_dir: Path, console: Console) -> None:
    """Print one line for each run, the most recently written one first."""
    runs = sorted(overviews(runs_dir), key=lambda run: run.written_at, reverse=True)
    now = datetime.now(UTC)
    right = ("step", "size", "age")
    table = table_of("run", "state", "accuracy", *right, right=right)
    for column in table.columns[3:]:
        column.no_wrap = True
    for run in runs:
        table.add_row(
            escape(run.run.name),
            _state(run),
            _accuracy(run),
            "" if run.step is None else f"{run.step}",
            decimal(size_on_disk([run.run.root])),
            age(now - run.written_at),
        )
    console.print(table)
    total = size_on_disk(run.run.root for run in runs)
    print_line(console, f"{len(runs)} runs in {runs_dir}, {decimal(total)}; files that runs share count once")


def _state(run: RunOverview) -> str:
    colour = _COLOURS.get(run.status, "yellow")
    remark = run.remark if len(run.remark) <= _LONGEST_REMARK else f"{run.remark[:_LONGEST_REMARK]}..."
    return f"[{colour}]{run.status}[/{colour}]" + (f" [dim]{escape(remark)}[/dim]" if remark else "")


def _accuracy(run: RunOverview) -> str:
    both = (run.base, run.trained)
    return "" if both == (None, None) else " → ".join("?" if value is None else f"{value:.1%}" for value in both)


def clean_runs(rule: Rule, runs_dir: Path, console: Console, *, remove: bool) -> int:
    """Print what the rule would remove; with `remove`, remove it. Returns 1 when a run could not be removed."""
    planned = plan_cleaning(runs_dir, rule, datetime.now(UTC), in_use=needed_runs(str(runs_dir)))
    if not remove:
        _print_cleaning(planned, console, verb="would be removed")
        if planned.removed:
            console.print("Nothing was removed: repeat it with --yes.", highlight=False)
        return 0
    done = carry_out_cleaning(planned, runs_dir)
    _print_cleaning(done, console, verb="removed")
    return 0 if len(done.removed) == len(planned.removed) else 1


def _print_cleaning(found: Cleaning, console: Console, *, verb: str) -> None:
    for title, choices in ((f"{verb}", found.removed), ("chosen, and kept", found.kept)):
        if choices:
            table = table_of("run", "chosen because", *(["kept because"] if choices[0].kept else []), title=title)
            for choice in choices:
                table.add_row(*map(escape, (choice.name, choice.why, *([choice.kept] if choice.kept else []))))
            console.print(table)
    what = "folder" if any(choice.earlier for choice in found.removed) else "run"
    count = f"{len(found.removed)} {what}{'s' * (len(found.removed) != 1)}"
    console.print(f"{count} {verb}, {decimal(found.num_bytes)} on the disk", highlight=False)
