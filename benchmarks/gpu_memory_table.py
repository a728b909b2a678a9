"""The table of docs/memory.md of what was measured on a GPU, beside the forecast:
`python -m benchmarks.gpu_memory_table docs/memory.md` writes it anew from benchmarks/results/gpu_memory.json."""

import json
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

from benchmarks.gpu_memory_cases import CHOSEN, Case, forecast
from sightline_tools.docs.gpu_table import put_between

RESULT: Final = Path(__file__).parent / "results" / "gpu_memory.json"

PHASES: Final = (
    "at rest",
    "pass of the reference",
    "forward and backward passes",
    "optimizer step",
    "weight sync",
)
"""What is measured of torch's allocator."""

_BEGIN, _END = "<!-- measured memory: written by make docs -->", "<!-- end of the measured memory -->"


def case_of(row: Mapping[str, Any]) -> Case:
    """The case of a measured row."""
    return Case(**{field.name: row[field.name] for field in fields(Case)})


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """The rows in Markdown, long and short responses side by side: GiB measured, and in brackets by how many percent
    the forecast differs; the last column has the largest difference of any moment."""
    groups: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for row in rows:
        groups[_name(case_of(row))].append(row)
    columns = ("at rest", "peak, long responses", "peak, short ones", "largest difference")
    lines = [f"| | {' | '.join(columns)} |", "|---" * (1 + len(columns)) + "|"]
    for name, found in groups.items():
        long, short = (next((row for row in found if _is_long(row) is wanted), None) for wanted in (True, False))
        worst = max((_difference(row, phase) for row in found for phase in PHASES), key=abs)
        cells = [_cell(found[0], "at rest"), _peak(long), _peak(short), f"{worst:+.0%}"]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _is_long(row: Mapping[str, Any]) -> bool:
    return case_of(row).response > 100


def _peak(row: Mapping[str, Any] | None) -> str:
    return "" if row is None else _cell(row, max(PHASES, key=lambda phase: row["gib"][phase]))


def _cell(row: Mapping[str, Any], phase: str) -> str:
    return f"{row['gib'][phase]:.1f} ({_difference(row, phase):+.0%})"


def _difference(row: Mapping[str, Any], phase: str) -> float:
    return float(forecast(case_of(row))[phase] / row["gib"][phase] - 1)


def _name(case: Case) -> str:
    """3B on 8, LoRA, activations kept, offload all."""
    family, _, rest = case.model.partition("/")[2].partition("-VL-")
    size = f"{family}-VL {rest.removesuffix('-Instruct')}"
    words = [f"{size} on {case.workers}" if case.workers > 1 else size, case.trained]
    words.append("recomputed" if case.recomputed else "kept")
    words += ["as chosen for an H100"] if case == CHOSEN else []
    return ", ".join([*words, *([f"offload {case.offload}"] if case.offload != "none" else [])])


def with_table(page: str) -> str:
    """A page with the table in its place. Raises ValueError where the page has no place for it."""
    return put_between(page, _BEGIN, _END, table(json.loads(RESULT.read_text())["rows"]))


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(with_table(path.read_text()))
