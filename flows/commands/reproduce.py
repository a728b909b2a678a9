"""`sightline reproduce`: published baselines by their names, from the plan to their status."""

from typing import Any

from rich.console import Console
from rich.table import Table

from flows.commands.reproduce_plan import print_baseline_plan
from flows.printing import say
from flows.reproducing import BaselineSet
from flows.run_set import RunSet
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
    if dry_run:
        return 0
    from flows.commands.run import carry_out_set

    return carry_out_set(baseline_set, _flow, print_conclusion, console)


def _flow() -> Any:
    from flows.reproduce import reproduce_baselines

    return reproduce_baselines


def print_conclusion(run_set: RunSet, console: Console) -> int:
    """Print the results of a set, which are read from its folder. Returns the exit code."""
    baselines = read_json(run_set.page.with_suffix(".json"))["baselines"]
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
    say(console, str(run_set.page), label="[green]done[/green]")
    return int(any(one["status"] != "good" for one in baselines))
