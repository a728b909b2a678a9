"""Some responses of a step as a table, for people who look at a tracker."""

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from rl_core.tracking.protocol import Table

COLUMNS = ("prompt", "response", "answer", "reward", "advantage")


def read_generations(path: Path, count: int) -> Table | None:
    """The first response of the first `count` prompts of a step, in the order of the loader.

    Args:
        path: The step's rollout file.
        count: Number of rows at most.

    Returns:
        The columns COLUMNS: `reward` is the component `overall`, `advantage` the mean credit of a token; both are None
        where there is none. None when there is no such file (the validation before training) or `count` is 0.
    """
    if count == 0 or not path.is_file():
        return None
    columns = ["sample_index", "prompt", "response", "answer", "components", "advantages"]
    records = pq.read_table(path, columns=columns, partitioning=None).to_pylist()
    rows = [_row(record) for record in records if record["sample_index"] == 0][:count]
    return {name: [row[name] for row in rows] for name in COLUMNS}


def _row(record: dict[str, Any]) -> dict[str, Any]:
    advantages = record["advantages"]
    return {
        "prompt": record["prompt"],
        "response": record["response"],
        "answer": record["answer"],
        "reward": dict(record["components"]).get("overall"),
        "advantage": sum(advantages) / len(advantages) if advantages else None,
    }


def as_markdown(table: Table) -> str:
    """The table as Markdown, one line a row."""
    rows = [[_cell(value) for value in row] for row in zip(*table.values(), strict=True)]
    lines = [list(table), ["---"] * len(table), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(value: object) -> str:
    text = f"{value:.4g}" if isinstance(value, float) else "" if value is None else str(value)
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;").replace("\n", "<br>")
