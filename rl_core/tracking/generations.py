"""Some responses of a step and some answers of a validation as tables, for people who look at a tracker."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from rl_core.config.stages import TrackingConfig
from rl_core.run_directory import RunDirectory
from rl_core.tracking.tracker import Table

GENERATIONS, VAL_GENERATIONS = "generations", "val_generations"
"""Names of the tables: responses of a step that were trained on, and answers to held-out prompts after it."""

COLUMNS = ("prompt", "response", "answer", "reward", "advantage")
VAL_COLUMNS = ("prompt", "response", "answer", "reward", "right")


def generation_tables(run: RunDirectory, step: int, tracking: TrackingConfig) -> dict[str, Table]:
    """[name] the tables of a step that the trackers are to show; step 0 has a validation at most."""
    tables = {
        GENERATIONS: read_generations(run.rollouts(step), tracking.generations_to_log),
        VAL_GENERATIONS: read_val_generations(run.validation(step), tracking.val_generations_to_log),
    }
    return {name: table for name, table in tables.items() if table is not None}


def read_generations(path: Path, count: int) -> Table | None:
    """The first response of the first `count` prompts of a step, in the order of the loader.

    Args:
        path: The step's rollout file.
        count: Number of rows at most.

    Returns:
        The columns COLUMNS: `reward` is the component `overall`, `advantage` the mean credit of a token; both are None
        where there is none. None when there is no such file (the validation before training) or `count` is 0.
    """
    records = _first_of_each(path, count, ["prompt", "response", "answer", "components", "advantages"])
    return _table(records, COLUMNS, lambda record: _mean(record["advantages"])) if records is not None else None


def read_val_generations(path: Path, count: int) -> Table | None:
    """The first answer to each of the first `count` held-out prompts, the same prompts at every step.

    Args:
        path: The step's file of validation.
        count: Number of rows at most.

    Returns:
        The columns VAL_COLUMNS: `reward` is as above, `right` says whether the response is right. None when there was
        no validation at that step or `count` is 0.
    """
    records = _first_of_each(path, count, ["prompt", "response", "answer", "components", "verdict"])
    return _table(records, VAL_COLUMNS, lambda record: record["verdict"]) if records is not None else None


def as_markdown(table: Table) -> str:
    """The table as Markdown, one line a row."""
    rows = [[_cell(value) for value in row] for row in zip(*table.values(), strict=True)]
    lines = [list(table), ["---"] * len(table), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _first_of_each(path: Path, count: int, columns: list[str]) -> list[dict[str, Any]] | None:
    """Of the first `count` prompts of a file the first response; None where there is nothing to show."""
    if count == 0 or not path.is_file():
        return None
    records = pq.read_table(path, columns=["sample_index", *columns], partitioning=None).to_pylist()
    return [record for record in records if record["sample_index"] == 0][:count]


def _table(records: list[dict[str, Any]], columns: tuple[str, ...], judged: Callable[[dict[str, Any]], Any]) -> Table:
    """`judged` gives the last column, which is what became of the response."""
    rows = [
        (
            record["prompt"],
            record["response"],
            record["answer"],
            dict(record["components"]).get("overall"),
            judged(record),
        )
        for record in records
    ]
    return {name: [row[place] for row in rows] for place, name in enumerate(columns)}


def _mean(values: list[float] | None) -> float | None:
    return sum(values) / len(values) if values else None


def _cell(value: object) -> str:
    text = f"{value:.4g}" if isinstance(value, float) else "" if value is None else str(value)
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;").replace("\n", "<br>")
