"""The table of docs/memory.md of what was measured on a GPU, beside the forecast:
`python -m benchmarks.gpu_memory_table docs/memory.md` writes it anew from benchmarks/results/gpu_memory.json."""

import json
import sys
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

from benchmarks.gpu_memory_cases import CHOSEN, Case, forecast
from tools.docs.gpu_table import put_between

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


def table(rows: list[Mapping[str, Any]]) -> str:
    """The rows in Markdown: GiB measured, and in brackets by how many percent the forecast differs."""
    lines = [f"| | {' | '.join(PHASES)} |", "|---" * (1 + len(PHASES)) + "|"]
    for row in rows:
        case = case_of(row)
        expected = forecast(case)
        cells = [f"{row['gib'][phase]:.1f} ({expected[phase] / row['gib'][phase] - 1:+.0%})" for phase in PHASES]
        lines.append(f"| {_name(case)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _name(case: Case) -> str:
    """3B on 8, LoRA, activations kept, responses of 20 tokens, offload all."""
    family, _, rest = case.model.partition("/")[2].partition("-VL-")
    size = f"{family}-VL {rest.removesuffix('-Instruct')}"
    words = [f"{size} on {case.workers}" if case.workers > 1 else size, case.trained]
    words.append("recomputed" if case.recomputed else "kept")
    words.append("long" if case.response > 100 else "short")
    words += ["as chosen for an H100"] if case == CHOSEN else []
    return ", ".join([*words, *([f"offload {case.offload}"] if case.offload != "none" else [])])


def with_table(page: str) -> str:
    """A page with the table in its place. Raises ValueError where the page has no place for it."""
    return put_between(page, _BEGIN, _END, table(json.loads(RESULT.read_text())["rows"]))


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(with_table(path.read_text()))
