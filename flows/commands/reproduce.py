"""`sightline reproduce`: published baselines by their names, from the plan to their status."""

from pathlib import Path

from rich.console import Console
from rich.table import Table

from flows.commands.reproduce_plan import print_baseline_plan
from flows.printing import say
from flows.process.error_messages import cause_of
from flows.process.watcher import Watcher, watched_by
from flows.reproducing import BaselineSet
from rl_core.files import read_json

_COLOURS = {"good": "green", "regressed": "red", "failed": "red", "not comparable": "yellow"}


def reproduce_set(baseline_set: BaselineSet, console: Console, *, dry_run: bool) -> int:
    """Print the plan of every baseline; unless it is a dry run, carry the baselines out and print their status.

    Returns:
        The exit code: 0 when all baselines are good, or in a dry run could work; 1 when one is not; 130 after Ctrl-C
        and 143 after SIGTERM.

    Raises:
        ValueError: a baseline is not there, or its config is refused.
    """
    could_work = [print_baseline_plan(plan, console) for plan in baseline_set.planned()]
    if not all(could_work):
        return 1
    return 0 if dry_run else _carry_out(baseline_set, console)


def _carry_out(baseline_set: BaselineSet, console: Console) -> int:
    """Call the flow that a deployment calls; its runs draw their own progress bars."""
    from flows.commands.run import call_flow, messages, say_stopped

    baseline_set.save()
    watcher = Watcher()
    with messages(console), watched_by(watcher):
        from flows.reproduce import reproduce_baselines  # what torch warns of at its import goes to the log

        error = call_flow(
            reproduce_baselines, {"resume": baseline_set.name, "runs_dir": baseline_set.runs_dir}, watcher.progress
        )
    if watcher.completed:
        return print_conclusion(baseline_set.folder, console)
    if watcher.stop.signum is not None:
        return say_stopped(watcher.stop.signum, baseline_set.command, console)
    say(console, cause_of(watcher.error or error), label="[bold red]failed[/bold red]")
    say(console, f"to continue: {baseline_set.command}", style="dim")
    return 1


def print_conclusion(folder: Path, console: Console) -> int:
    """Print the results of a set, which are read from its folder. Returns the exit code."""
    baselines = read_json(folder / "summary.json")["baselines"]
    table = Table(title="Baselines", title_justify="left")
    for column in ("baseline", "status", "accuracy", "run"):
        table.add_column(column, overflow="fold")
    for one in baselines:
        found = one["reproduction"]
        accuracy = f"{found['accuracy_before']:.3f} -> {found['accuracy']:.3f}" if found else "-"
        table.add_row(one["name"], f"[{_COLOURS[one['status']]}]{one['status']}[/]", accuracy, one["run"])
    console.print()
    console.print(table)
    for one in baselines:
        for reason in one["reasons"]:
            console.print(f"{one['name']}: {reason}", markup=False, highlight=False, soft_wrap=True)
    say(console, str(folder / "summary.html"), label="[green]done[/green]")
    return int(any(one["status"] != "good" for one in baselines))
