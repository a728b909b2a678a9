"""Records a comparison: a self-contained page, its figures as JSON, and both in MLflow."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rl_core.digests import digest_of
from rl_core.files import atomic_write_json, atomic_write_text
from rl_core.redaction import redact
from tasks.comparison.data import comparison_page
from tasks.comparison.groups import RunGroup
from tasks.comparison.page import ComparisonPage, ComparisonRow, GroupRow, render_comparison
from tasks.results.report_page import percent, points
from tasks.tracking.run_tracking import page_run

EXPERIMENT = "comparisons"
"""MLflow experiment of the comparisons, whatever experiments their runs belong to."""


def write_comparison(groups: Sequence[RunGroup], out: Path, *, num_items: int) -> ComparisonPage:
    """Write the page to `out`, and its figures beside it with the ending `.json`. Raises ValueError where there are
    more groups than a chart has colours, or no mode in which all runs were evaluated. Raises OSError where a file
    cannot be written."""
    page = comparison_page(groups, num_items=num_items)
    out.parent.mkdir(parents=True, exist_ok=True)
    atomic_write_text(out, redact(render_comparison(page)))
    atomic_write_json(out.with_suffix(".json"), as_json(page, groups))
    return page


def show_comparison(page: ComparisonPage, groups: Sequence[RunGroup], out: Path, *, mlflow_uri: str) -> None:
    """Show a comparison in MLflow, where it replaces an earlier one of the same runs. An outage is a warning."""
    from rl_core.tracking.tracker import tolerated_outage

    names = [sorted(run.run.name for run in group.runs) for group in groups]
    identity = f"comparison-{digest_of(names)}"
    mlflow_run = page_run(mlflow_uri, EXPERIMENT, name=page.title, run=identity, stage="comparison")
    tags = {f"group.{group.label}": ", ".join(run.run.name for run in group.runs) for group in groups}
    tags |= {f"verdict.{row.label}": row.conclusion for row in page.comparisons}
    with tolerated_outage("the comparison"):
        mlflow_run.show_page(out, tags=tags, metrics=headline_metrics(page))


def as_json(page: ComparisonPage, groups: Sequence[RunGroup]) -> dict[str, Any]:
    """The figures for scripts."""
    return {
        "mode": page.mode,
        "groups": [_group_json(row, group) for row, group in zip(page.groups, groups, strict=True)],
        "runs": [
            {"run": row.name, "seed": row.seed, "base": row.base, "trained": row.accuracy and row.accuracy.accuracy}
            for row in page.runs
        ],
        "comparisons": [_comparison_json(row) for row in page.comparisons],
        "differing": {key: list(values) for key, values in page.differing.items()},
        "remarks": list(page.remarks),
    }


def _group_json(row: GroupRow, group: RunGroup) -> dict[str, Any]:
    accuracy = row.accuracy
    return {
        "label": row.label,
        "runs": [run.run.name for run in group.runs],
        "seeds": list(row.seeds),
        "base_accuracy": row.base,
        "accuracy": accuracy and accuracy.mean,
        "ci95": accuracy and list(accuracy.ci95),
        "accuracy_by_seed": accuracy and list(accuracy.by_seed),
        "sd_over_seeds": accuracy and accuracy.sd,
        "ci95_over_seeds": accuracy and accuracy.over_seeds and list(accuracy.over_seeds),
        "over_seeds": row.over_seeds,
        "stragglers": [asdict(straggler) for straggler in row.stragglers],
    }


def _comparison_json(row: ComparisonRow) -> dict[str, Any]:
    found = row.comparison
    seeds = found.over_seeds
    return {
        "label": row.label,
        "reference": row.reference,
        "items": found.n,
        "difference": found.difference,
        "over_items": {"ci95": list(found.ci95), "p_value": row.p_items},
        "over_seeds": None if seeds is None else {"ci95": list(seeds.ci95), "p_value": row.p_seeds},
        "verdict": row.conclusion,
        "flipped": dict(found.flipped),
    }


def headline_metrics(page: ComparisonPage) -> Mapping[str, float]:
    """The metrics in MLflow: accuracy of each group, difference and p-values of each comparison."""
    metrics = {f"accuracy/{row.label}": row.accuracy.mean for row in page.groups if row.accuracy is not None}
    for row in page.comparisons:
        metrics[f"difference/{row.label}"] = row.comparison.difference
        metrics[f"p_items/{row.label}"] = row.p_items
        if row.p_seeds is not None:
            metrics[f"p_seeds/{row.label}"] = row.p_seeds
    return metrics


def markdown(page: ComparisonPage, out: Path) -> str:
    """The figures as a Markdown page."""
    rows = {row.place: row for row in page.comparisons}
    measured = ("group", "seeds", "accuracy", "95 % over items", "95 % over seeds")
    columns = (*measured, "difference, points", "p over items", "p over seeds")
    lines = [f"# {page.title}", "", f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    for place, group in enumerate(page.groups):
        row, accuracy = rows.get(place), group.accuracy
        cells = [group.label, ", ".join(map(str, group.seeds))]
        cells += [percent(accuracy.mean), " to ".join(map(percent, accuracy.ci95))] if accuracy else ["", ""]
        cells += [group.interval_over_seeds]
        cells += [points(row.comparison.difference), f"{row.p_items:.3g}"] if row else ["", ""]
        cells += [f"{row.p_seeds:.3g}" if row and row.p_seeds is not None else ""]
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    behind = [
        f"{group.label}, seed {straggler.seed} stayed behind: {straggler.cause}"
        for group in page.groups
        for straggler in group.stragglers
    ]
    conclusions = (row.conclusion for row in page.comparisons)
    sentences = [*conclusions, *behind, *page.remarks, f"The page: `{out.absolute()}`"]
    return "\n".join([*lines, "", *(f"- {sentence}" for sentence in sentences), ""])
