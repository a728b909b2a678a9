"""The tables that the command line prints."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from flows.printing import print_line, table_of
from rl_core.evaluation.result import EvaluationResult, items_words
from rl_core.export.model_card import usage_lines
from rl_core.run_directory import RunDirectory
from rl_core.wording import duration
from tasks.comparison.page import COLUMNS, ComparisonPage
from tasks.results.report_page import p_value
from tasks.results.run_facts import EVALUATED_MODELS, RunFacts, stage_order

_SHOWN_CATEGORIES = 40


def print_summary(run: RunDirectory, console: Console) -> None:
    """Print the results of a finished run from its summary.json."""
    summary = json.loads(run.summary.read_text(encoding="utf-8"))
    console.print()
    console.print(_accuracy_table(summary))
    if rewards := summary["reward"]:
        first, last = rewards["first_step"], rewards["last_step"]
        console.print(
            f"training reward {first:.3f} at step 1, {last:.3f} at step {summary['steps']}\n", highlight=False
        )
    else:
        console.print("no step was trained\n", highlight=False)
    for doubt in RunFacts(run).doubts:
        print_line(console, doubt, label="[yellow]look[/yellow]")
    console.print(_stage_table(summary))
    console.print(speed_line(summary), highlight=False)
    for place in ("report", "merged_model"):
        print_line(console, f"{place.replace('_', ' '):13} {summary[place]}")
    print_line(console, "pages         sightline ui  (MLflow and Prefect, on this machine only)")
    # The merged model may have been removed to free space.
    usage = usage_lines(run.merged_model) if run.merged_model.is_dir() else {}
    for title, lines in usage.items():
        print_line(console, f"\n{title}:")
        print_line(console, lines, style="bold")


def _accuracy_table(summary: Mapping[str, Any]) -> Table:
    evaluation = summary["evaluation"]
    numbers = ("accuracy", "95 % interval", "items")
    table = table_of("model", *numbers, title="Held-out accuracy", right=numbers)
    for name in ("base", "trained"):
        figures = evaluation[name]
        low, high = figures["ci95"]
        table.add_row(
            name,
            f"{figures['accuracy']:.1%}",
            f"{low:.1%} to {high:.1%}",
            items_words(figures["n"], figures["failed_rewards"]),
        )
    return table


def print_evaluations(run: RunDirectory, console: Console) -> None:
    """Print every pass of both models over the held-out items, how responses changed, and the accuracy by category."""
    facts = RunFacts(run)
    results = [(evaluated, result) for evaluated in EVALUATED_MODELS for result in facts.results(evaluated).values()]
    figures = ("accuracy", "95 % interval", "items", "unreadable", "cut off")
    table = table_of("model", "pass", *figures, title="Held-out answers", right=figures)
    for evaluated, result in results:
        low, high = result.ci95
        table.add_row(
            *(evaluated, result.mode, f"{result.accuracy:.1%}", f"{low:.1%} to {high:.1%}"),
            items_words(result.n, result.failed_rewards),
            *(shown_share(result.parse_failure_rate), shown_share(result.truncation_rate)),
        )
    console.print(table)
    comparison = facts.comparison()
    if comparison is not None:
        console.print(
            f"{len(comparison.gained)} items became right, {len(comparison.lost)} became wrong "
            f"(McNemar p {p_value(comparison.p_value)})",
            highlight=False,
        )
    for evaluated, result in results:
        if result.categories:
            console.print(category_table(result, title=f"{evaluated}, {result.mode}"))
    for evaluated in EVALUATED_MODELS:
        console.print(f"{evaluated:8} {run.evaluation(evaluated)}", markup=False, highlight=False, soft_wrap=True)


def category_table(result: EvaluationResult, *, title: str) -> Table:
    """The accuracy of each category: each value of the columns that split the items, at most the first 40."""
    shown = ("items", "accuracy", "95 % interval")
    table = table_of("column", "value", *shown, title=title, right=shown)
    for row in result.categories[:_SHOWN_CATEGORIES]:
        low, high = row.ci95
        figures = (f"{row.n}", f"{row.accuracy:.1%}", f"{low:.1%} to {high:.1%}")
        table.add_row(Text(row.column), Text(row.value), *figures)
    return table


def shown_share(share: float | None) -> str:
    """A share as a percentage, or "not known"."""
    return "not known" if share is None else f"{share:.1%}"


def _stage_table(summary: Mapping[str, Any]) -> Table:
    table = table_of("stage", "time", "origin", title="Wall time", right=["time"], dim="origin")
    for stage, seconds in sorted(summary["timings_s"].items(), key=lambda item: stage_order(item[0])):
        origin = summary["reused"].get(stage)
        table.add_row(stage, duration(seconds), Text(f"taken over from {origin}" if origin else ""))
    return table


def speed_line(summary: Mapping[str, Any]) -> str:
    """The speed of training."""
    rates = summary["throughput"]
    return f"training: {rates['samples_per_s']:,.0f} samples/s, {rates['tokens_per_s']:,.0f} tokens/s\n"


def print_comparison(page: ComparisonPage, out: Path, console: Console) -> None:
    """Print the figures of a comparison, and the path of its page."""
    for remark in page.remarks:
        print_line(console, remark, label="[yellow]note[/yellow]")
    if page.differing:
        differing = table_of("what differs", *(group.label for group in page.groups))
        for key, values in page.differing.items():
            differing.add_row(key, *map(Text, values))
        console.print(differing)
    table = table_of(*COLUMNS, title=f"held-out accuracy, {page.mode}", right=COLUMNS[2:])
    for cells in page.cells():
        table.add_row(*(Text(cell or "-") for cell in cells))
    console.print(table)
    for row in page.comparisons:
        console.print(row.conclusion, markup=False, highlight=False, soft_wrap=True)
    print_line(console, str(out), label="[green]done[/green]")
