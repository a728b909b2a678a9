"""`sightline run --seeds`: one config with several seeds, and what holds over them."""

from typing import Any

from rich.console import Console
from rich.table import Table

from flows.commands.run import carry_out_set
from flows.printing import say
from flows.run_set import RunSet
from flows.seed_group import SeedGroup
from rl_core.files import read_json


def run_group(group: SeedGroup, console: Console) -> int:
    """Carry out the runs of a group and print their accuracies.

    Returns:
        The exit code: 0 when all runs are finished, 1 when one is not, 130 after Ctrl-C and 143 after SIGTERM.
    """
    say(console, group.name, style="bold")
    return carry_out_set(group, _flow, print_group, console)


def _flow() -> Any:
    from flows.baseline_seeds import baseline_seeds

    return baseline_seeds


def print_group(run_set: RunSet, console: Console) -> int:
    """Print the results of a concluded group, which are read from its folder. Returns the exit code."""
    figures = read_json(run_set.page.with_suffix(".json"))
    (group,) = figures["groups"]
    table = Table(title=f"Held-out accuracy, {figures['mode']}", title_justify="left")
    for column in ("seed", "before", "after", "run"):
        table.add_column(column, justify="left" if column == "run" else "right", overflow="fold")
    for run in figures["runs"]:
        table.add_row(f"{run['seed']}", f"{run['base']:.1%}", f"{run['trained']:.1%}", run["run"])
    console.print()
    console.print(table)
    console.print(group["over_seeds"], highlight=False)
    for behind in group["stragglers"]:
        say(console, f"{behind['seed']} stayed behind: {behind['cause']}", label="[yellow]seed[/yellow]")
    say(console, str(run_set.page), label="[green]done[/green]")
    return int(any(behind["accuracy"] is None for behind in group["stragglers"]))
