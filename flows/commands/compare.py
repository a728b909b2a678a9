"""Prints a comparison of runs."""

from pathlib import Path

from rich.console import Console
from rich.table import Table

from flows.printing import say
from tasks.comparison.page import ComparisonPage


def print_comparison(page: ComparisonPage, out: Path, console: Console) -> None:
    """Print the figures of a comparison, and the path of its page."""
    for remark in page.remarks:
        say(console, remark, label="[yellow]note[/yellow]")
    console.print(_table(page))
    for row in page.comparisons:
        console.print(row.conclusion, markup=False, highlight=False, soft_wrap=True)
    say(console, str(out), label="[green]done[/green]")


def _table(page: ComparisonPage) -> Table:
    table = Table(title=f"held-out accuracy, {page.mode}", title_justify="left")
    for column in ("group", "seeds", "accuracy", "95 %, items", "95 %, seeds", "points", "p, items", "p, seeds"):
        table.add_column(column, justify="left" if column in ("group", "seeds") else "right")
    rows = {row.place: row for row in page.comparisons}
    for place, group in enumerate(page.groups):
        accuracy, row = group.accuracy, rows.get(place)
        table.add_row(
            group.label.replace("[", r"\["),
            ", ".join(map(str, group.seeds)),
            f"{accuracy.mean:.1%}" if accuracy else "-",
            f"{accuracy.ci95[0]:.1%} to {accuracy.ci95[1]:.1%}" if accuracy else "-",
            group.interval_over_seeds or "-",
            row.headline if row else "-",
            f"{row.p_items:.3g}" if row else "-",
            f"{row.p_seeds:.3g}" if row and row.p_seeds is not None else "-",
        )
    return table
