"""The folder of an evaluation: items.parquet and result.json, which are written together or not at all."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from rl_core.evaluation.items import EvaluationItem, Mode, read_items, write_items
from rl_core.evaluation.result import EvaluationResult, summarise
from rl_core.files import atomic_write_json, committed_folder

ITEMS_FILE = "items.parquet"
RESULT_FILE = "result.json"


def write_evaluation(folder: Path, items: Mapping[Mode, Sequence[EvaluationItem]]) -> dict[Mode, EvaluationResult]:
    """Replace `folder` by the items of all modes and their results.

    Returns:
        [mode] -> result.

    Raises:
        ValueError: the items of a mode have different numbers of responses, or none has a score; the folder is
            unchanged.
        OSError: the folder cannot be written; it is unchanged.
    """
    results = {mode: summarise(of_mode) for mode, of_mode in items.items()}
    with committed_folder(folder) as temporary:
        write_items(temporary / ITEMS_FILE, [item for of_mode in items.values() for item in of_mode])
        atomic_write_json(temporary / RESULT_FILE, {mode: result.to_json() for mode, result in results.items()})
    return results


def read_results(folder: Path) -> dict[Mode, EvaluationResult]:
    """Read the result of each mode. Raises FileNotFoundError when there is no evaluation."""
    values = json.loads((folder / RESULT_FILE).read_text())
    return {mode: EvaluationResult.from_json(result) for mode, result in values.items()}


def read_evaluation(folder: Path) -> dict[Mode, list[EvaluationItem]]:
    """Read the items of each mode, in the order in which they were written. Raises FileNotFoundError when there is no
    evaluation."""
    items: dict[Mode, list[EvaluationItem]] = {}
    for item in read_items(folder / ITEMS_FILE):
        items.setdefault(item.mode, []).append(item)
    return items
