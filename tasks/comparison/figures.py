"""The figures of a comparison, for scripts and for MLflow."""

from collections.abc import Mapping, Sequence
from typing import Any

from tasks.comparison.groups import RunGroup
from tasks.comparison.page import ComparisonPage, ComparisonRow, GroupRow


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
    """The figures that MLflow shows: accuracy of each group, difference and p-value of each comparison."""
    metrics = {f"accuracy/{row.label}": row.accuracy.mean for row in page.groups if row.accuracy is not None}
    for row in page.comparisons:
        metrics[f"difference/{row.label}"] = row.comparison.difference
        metrics[f"p_items/{row.label}"] = row.p_items
        if row.p_seeds is not None:
            metrics[f"p_seeds/{row.label}"] = row.p_seeds
    return metrics
