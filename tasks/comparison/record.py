"""Records a comparison: a self-contained page, its figures as JSON, and both in MLflow."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rl_core.digests import digest_of
from rl_core.files import atomic_write_json, atomic_write_text
from rl_core.redaction import redact
from tasks.comparison.data import comparison_page
from tasks.comparison.groups import RunGroup
from tasks.comparison.page import ComparisonPage, ComparisonRow, GroupRow, render_comparison

if TYPE_CHECKING:
    from rl_core.tracking.mlflow_runs import MlflowRun

EXPERIMENT = "comparisons"
"""MLflow experiment of the comparisons, whatever experiments their runs belong to."""


def write_comparison(groups: Sequence[RunGroup], out: Path, *, num_items: int) -> ComparisonPage:
    """Write the page to `out`, and its figures beside it with the ending `.json`.

    Args:
        groups: The groups to compare; the first is the reference.
        out: The HTML file.
        num_items: Number of flipped items to show for each group.

    Raises:
        ValueError: there are more groups than a chart has colours, or no mode in which all runs were evaluated.
        OSError: a file cannot be written.
    """
    page = comparison_page(groups, num_items=num_items)
    out.parent.mkdir(parents=True, exist_ok=True)
    atomic_write_text(out, redact(render_comparison(page)))
    atomic_write_json(out.with_suffix(".json"), as_json(page, groups))
    return page


def show_comparison(page: ComparisonPage, groups: Sequence[RunGroup], out: Path, *, mlflow_uri: str) -> None:
    """Show a comparison in MLflow, where it replaces an earlier one of the same runs. An outage is a warning."""
    from rl_core.tracking.mlflow_access import MlflowAccess
    from rl_core.tracking.mlflow_runs import RUN_TAG, STAGE_TAG, MlflowRun
    from rl_core.tracking.tracker import tolerated_outage

    names = [sorted(run.run.name for run in group.runs) for group in groups]
    identity = {RUN_TAG: f"comparison-{digest_of(names)}", STAGE_TAG: "comparison"}
    mlflow_run = MlflowRun(MlflowAccess(mlflow_uri), experiment=EXPERIMENT, name=page.title, tags=identity)
    with tolerated_outage("the comparison"):
        _show(mlflow_run, page, groups, out)


def _show(mlflow_run: "MlflowRun", page: ComparisonPage, groups: Sequence[RunGroup], out: Path) -> None:
    mlflow_run.set_status("RUNNING")
    mlflow_run.set_tags({f"group.{group.label}": ", ".join(run.run.name for run in group.runs) for group in groups})
    mlflow_run.set_tags({f"verdict.{row.label}": row.conclusion for row in page.comparisons})
    metrics = headline_metrics(page)
    mlflow_run.log_metrics({name: value for name, value in metrics.items() if mlflow_run.latest_metric(name) != value})
    mlflow_run.log_file(out)
    mlflow_run.log_file(out.with_suffix(".json"))
    mlflow_run.set_status("FINISHED")


def as_json(page: ComparisonPage, groups: Sequence[RunGroup]) -> dict[str, Any]:
    """The figures for scripts."""
    return {
        "mode": page.mode,
        "groups": [_group_json(row, group) for row, group in zip(page.groups, groups, strict=True)],
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
