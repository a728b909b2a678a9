"""`sightline compare`: runs side by side."""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from flows.request import find_run
from rl_core.run_directory import RunDirectory
from rl_core.tracking.mlflow_address import mlflow_address
from tasks.comparison import show_comparison, write_comparison
from tasks.comparison_groups import RunGroup, group_runs
from tasks.comparison_page import ComparisonPage


def asked_groups(runs: Sequence[str], groups: Sequence[str], *, runs_dir: str) -> list[RunGroup]:
    """The groups that were asked for.

    Args:
        runs: Folders or names of runs.
        groups: `NAME=RUN,RUN` texts.
        runs_dir: Where runs that are named lie.

    Raises:
        ValueError: a run is not there, or a group is not written so.
    """
    named = dict(_named_group(text, runs_dir) for text in groups)
    if len(named) < len(groups):
        raise ValueError("two of the --group options have one name")
    return group_runs([find_run(run, runs_dir) for run in runs], named)


def _named_group(text: str, runs_dir: str) -> tuple[str, list[RunDirectory]]:
    name, separator, runs = text.partition("=")
    if not separator or not name or not runs:
        raise ValueError(f"--group {text!r} must read NAME=RUN,RUN")
    return name, [find_run(run, runs_dir) for run in runs.split(",")]


def compare_runs(
    groups: Sequence[RunGroup], console: Console, *, out: Path, num_items: int, mlflow_uri: str | None
) -> ComparisonPage:
    """Write the comparison, show it in MLflow, and print its figures.

    Args:
        groups: What is compared.
        console: Takes the figures.
        out: The HTML file.
        num_items: Flipped items to show of each group.
        mlflow_uri: Where it is shown; None takes the first run's place, and none where that run has none.
    """
    page = write_comparison(groups, out, num_items=num_items)
    address = mlflow_uri or mlflow_address(groups[0].runs[0].config.tracking)
    if address:
        show_comparison(page, groups, out, mlflow_uri=address)
    for remark in page.remarks:
        console.print(f"[yellow]note[/yellow] {remark}", highlight=False, soft_wrap=True)
    console.print(_table(page))
    for row in page.comparisons:
        console.print(row.verdict, markup=False, highlight=False, soft_wrap=True)
    console.print(f"[green]done[/green] {out}", highlight=False, soft_wrap=True)
    return page


def _table(page: ComparisonPage) -> Table:
    table = Table(title=f"held-out accuracy, {page.mode}", title_justify="left")
    for column in ("group", "seeds", "accuracy", "95 % over items", "difference", "p over items", "p over seeds"):
        table.add_column(column, justify="left" if column in ("group", "seeds") else "right")
    rows = {row.place: row for row in page.comparisons}
    for place, group in enumerate(page.groups):
        accuracy, row = group.accuracy, rows.get(place)
        table.add_row(
            group.label.replace("[", r"\["),
            ", ".join(map(str, group.seeds)),
            f"{accuracy.mean:.1%}" if accuracy else "-",
            f"{accuracy.ci95[0]:.1%} to {accuracy.ci95[1]:.1%}" if accuracy else "-",
            row.headline if row else "-",
            f"{row.p_items:.3g}" if row else "-",
            f"{row.p_seeds:.3g}" if row and row.p_seeds is not None else "-",
        )
    return table
