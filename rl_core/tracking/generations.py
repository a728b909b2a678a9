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

COLUMNS = ("prompt", "response", "answer", "reward", "advantage")
VAL_COLUMNS = ("prompt", "response", "answer", "reward", "right")


def generation_tables(run: RunDirectory, step: int, tracking: TrackingConfig) -> dict[str, Table]:
    """[name] -> table of a step that the trackers are to show. Step 0 has a validation at most."""
    tables = {
        GENERATIONS: read_generations(run.rollouts(step), tracking.generations_to_log),
        VAL_GENERATIONS: read_val_generations(run.validation(step), tracking.val_generations_to_log),
    }
    return {name: table for name, table in tables.items() if table is not None}


def read_generations(path: Path, count: int) -> Table | None:
    """Read the first response to each of the first `count` prompts of a step, in the order of the loader, from its
    rollout file.

    Returns:
        The columns COLUMNS: `reward` is the component `overall`, `advantage` the mean advantage of a token; each is
            None for a response that has none. None when there is no such file (step 0) or `count` is 0.
    """
    records = _first_of_each(path, count, ["prompt", "response", "answer", "components", "advantages"])
    return _table(records, COLUMNS, lambda record: _mean(record["advantages"])) if records is not None else None


def read_val_generations(path: Path, count: int) -> Table | None:
    """Read the first response to each of the first `count` held-out prompts, which are the same at every step, from the
    step's validation file.

    Returns:
        The columns VAL_COLUMNS: `reward` is the component `overall`. None when there was no validation at that step or
            `count` is 0.
    """
    records = _first_of_each(path, count, ["prompt", "response", "answer", "components", "verdict"])
    return _table(records, VAL_COLUMNS, lambda record: record["verdict"]) if records is not None else None


def as_markdown(table: Table) -> str:
    """The table as Markdown, one line for each row."""
    rows = [[_cell(value) for value in row] for row in zip(*table.values(), strict=True)]
    lines = [list(table), ["---"] * len(table), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _first_of_each(path: Path, count: int, columns: list[str]) -> list[dict[str, Any]] | None:
    if count == 0 or not path.is_file():
        return None
    records = pq.read_table(path, columns=["sample_index", *columns], partitioning=None).to_pylist()
    return [record for record in records if record["sample_index"] == 0][:count]


def _table(records: list[dict[str, Any]], columns: tuple[str, ...], judged: Callable[[dict[str, Any]], Any]) -> Table:
    """`judged` gives the value of the last column."""
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
