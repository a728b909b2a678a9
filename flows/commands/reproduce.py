"""`sightline reproduce`: published baselines by their names, from the plan to their status."""

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table

from flows.commands.reproduce_plan import print_baseline_plan
from flows.printing import say
from flows.reproducing import BaselineSet
from flows.run_set import RunSet
from rl_core.files import read_json

_COLOURS = {"good": "green", "regressed": "red", "failed": "red", "undecided": "yellow", "not comparable": "yellow"}


def reproduce_set(baseline_set: BaselineSet, console: Console, *, dry_run: bool) -> int:
    """Print the plan of every baseline; unless it is a dry run, carry the baselines out and print their status.

    Returns:
        The exit code: 0 when all baselines are good, or in a dry run could work; 1 when one is not; 130 after Ctrl-C
        and 143 after SIGTERM.

    Raises:
        ValueError: a baseline is not there, or its config is refused.
    """
    could_work = [print_baseline_plan(plans, console) for plans in baseline_set.by_baseline()]
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
    for column in ("baseline", "status", "accuracy", "95 % over seeds", "runs"):
        table.add_column(column, overflow="fold")
    for one in baselines:
        status = f"[{_COLOURS[one['status']]}]{one['status']}[/]"
        table.add_row(one["name"], status, *_accuracies(one["reproduction"]), "\n".join(map(_run_words, one["runs"])))
    console.print()
    console.print(table)
    for one in baselines:
        for reason in one["reasons"]:
            console.print(f"{one['name']}: {reason}", markup=False, highlight=False, soft_wrap=True)
    say(console, str(run_set.page), label="[green]done[/green]")
    return int(any(one["status"] != "good" for one in baselines))


def _accuracies(found: Mapping[str, Any] | None) -> tuple[str, str]:
    if found is None:
        return "-", "-"
    over_seeds = found["ci95_over_seeds"]
    interval = f"{over_seeds[0]:.3f} to {over_seeds[1]:.3f}" if over_seeds else "one seed"
    return f"{found['accuracy_before']:.3f} -> {found['accuracy']:.3f}", interval


def _run_words(run: Mapping[str, Any]) -> str:
    accuracy = "no accuracy" if run["accuracy"] is None else f"{run['accuracy']:.3f}"
    return f"seed {run['seed']}: {accuracy}, {run['run']}"
