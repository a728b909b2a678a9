"""Tables of some responses of a training step and of a validation, which trackers show."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from rl_core.config.stages import TrackingConfig
from rl_core.run_directory import RunDirectory
from rl_core.tracking.tracker import Table

GENERATIONS, VAL_GENERATIONS = "generations", "val_generations"
"""Names of the tables: responses of a training step, and responses to held-out prompts after it."""


def generation_tables(run: RunDirectory, step: int, tracking: TrackingConfig) -> dict[str, Table]:
    """[name] -> table of a step that the trackers are to show."""
    tables = {
        GENERATIONS: _table(run.rollouts(step), tracking.generations_to_log, "advantages", "advantage", _mean),
        VAL_GENERATIONS: _table(run.validation(step), tracking.val_generations_to_log, "verdict", "right", bool),
    }
    return {name: table for name, table in tables.items() if table is not None}


def as_markdown(table: Table) -> str:
    """The table as Markdown, one line for each row."""
    rows = [[_cell(value) for value in row] for row in zip(*table.values(), strict=True)]
    lines = [list(table), ["---"] * len(table), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _table(path: Path, count: int, column: str, shown: str, value: Callable[[Any], Any]) -> Table | None:
    """The first response to each of the first `count` prompts of a file, with its component `overall` and a `column`
    that is `shown` under another name."""
    if count == 0 or not path.is_file():
        return None
    texts = ("prompt", "response", "answer")
    columns = ["sample_index", *texts, "components", column]
    records = pq.read_table(path, columns=columns, partitioning=None).to_pylist()
    first = [record for record in records if record["sample_index"] == 0][:count]
    return {
        **{name: [record[name] for record in first] for name in texts},
        "reward": [dict(record["components"]).get("overall") for record in first],
        shown: [value(record[column]) for record in first],
    }


def _mean(values: list[float] | None) -> float | None:
    return sum(values) / len(values) if values else None


def _cell(value: object) -> str:
    text = f"{value:.4g}" if isinstance(value, float) else "" if value is None else str(value)
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;").replace("\n", "<br>")
