"""How large the product is, and how far one reads to follow it: `python -m benchmarks.house` (under two minutes).

Each figure is counted from the sources, but for the files that `sightline plan` and a training step enter: these are
the files whose functions run, as a profiler sees them in this process.
"""

import argparse
import ast
import inspect
import json
import re
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

import grimp
import networkx

from benchmarks.speed.report import machine_facts

PACKAGES: Final = ("rl_core", "tasks", "flows")
ROOT: Final = Path(__file__).parent.parent
CONFIG: Final = "configs/quickstart.yaml"
WARM_STEP: Final = 3
SHORT_RUN: Final = (
    *("data.train.size=384", "data.validation.size=32", "cold_start.source=null"),
    *(f"trainer.max_steps={WARM_STEP}", "trainer.val_freq=-1"),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, help="file for the result, such as benchmarks/results/house.json")
    output = parser.parse_args().output
    facts = machine_facts("benchmarks.house", sys.argv[1:])
    text = json.dumps({key: facts[key] for key in ("command", "commit", "uncommitted_changes")} | figures(), indent=1)
    print(text)
    if output is not None:
        output.write_text(text + "\n")


def figures() -> dict[str, Any]:
    """Every figure by its name."""
    files = [file for package in PACKAGES for file in tracked(f"{package}/*.py")]
    trees = [ast.parse(file.read_text()) for file in files]
    lines = line_count(files)
    classes = Counter(node.name for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
    planned = entered_by_plan()
    stepped = entered_by_a_step()
    return {
        "lines": lines,
        "files": len(files),
        "lines of each package": {package: line_count(tracked(f"{package}/*.py")) for package in PACKAGES},
        "share of docstrings": round(sum(map(docstring_lines, trees)) / lines, 3),
        "lines of tools": line_count(tracked("sightline_tools/*.py")),
        "lines of tests": line_count(tracked("tests/*.py")),
        "words of README.md, CONTRIBUTING.md and docs": word_count(),
        "files that plan enters": len(planned),
        "files that a warm step enters": len(stepped),
        "members of the worker protocols": len(protocol_members(ROOT / "rl_core/workers/protocol.py")),
        "circles of imports": circles(),
        "class names that stand twice": sorted(name for name, count in classes.items() if count > 1),
        "types named Problem": sum(count for name, count in classes.items() if name.endswith("Problem")),
    }


def tracked(pattern: str) -> list[Path]:
    """The files of the repository that match a pattern of git."""
    found = subprocess.run(["git", "ls-files", pattern], cwd=ROOT, capture_output=True, text=True, check=True)
    return [ROOT / name for name in found.stdout.splitlines()]


def line_count(files: Sequence[Path]) -> int:
    return sum(len(file.read_text().splitlines()) for file in files)


def word_count() -> int:
    """Words of prose and tables: runs of characters with a letter or a digit in them."""
    files = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *tracked("docs/*.md")]
    return sum(len(re.findall(r"\S*\w\S*", file.read_text())) for file in files)


def docstring_lines(tree: ast.AST) -> int:
    """Lines of docstrings of modules, classes, functions and attributes."""
    texts = (node.value for node in ast.walk(tree) if isinstance(node, ast.Expr))
    strings = (text for text in texts if isinstance(text, ast.Constant) and isinstance(text.value, str))
    return sum((text.end_lineno or text.lineno) - text.lineno + 1 for text in strings)


def protocol_members(file: Path) -> set[str]:
    """Public members of the protocols in a file."""
    return {
        member.name
        for node in ast.parse(file.read_text()).body
        if isinstance(node, ast.ClassDef)
        and any(isinstance(base, ast.Name) and base.id == "Protocol" for base in node.bases)
        for member in node.body
        if isinstance(member, ast.FunctionDef) and not member.name.startswith("_")
    }


def circles() -> list[list[str]]:
    """Groups of modules that import each other in a circle; imports inside functions count."""
    graph = grimp.build_graph(*PACKAGES)
    imports = networkx.DiGraph(
        (module, imported) for module in graph.modules for imported in graph.find_modules_directly_imported_by(module)
    )
    return [sorted(found) for found in networkx.strongly_connected_components(imports) if len(found) > 1]


def entered_by_plan() -> set[str]:
    with entered_files() as entered:
        run_command("plan", CONFIG)
    return entered


def entered_by_a_step() -> set[str]:
    """The files that the third step of a short run enters in the process of the run."""
    from rl_core.loop.training_loop import TrainingLoop  # loads torch, which `plan` must not

    step = TrainingLoop._run_step
    found: set[str] = set()
    steps = 0

    def counted(loop: TrainingLoop, *arguments: Any, **named: Any) -> Any:
        nonlocal steps
        steps += 1
        with entered_files() as entered:
            result = step(loop, *arguments, **named)
        if steps == WARM_STEP:
            found.update(entered)
        return result

    TrainingLoop._run_step = counted  # type: ignore[method-assign]
    with tempfile.TemporaryDirectory() as folder:
        run_command("run", CONFIG, "--runs-dir", folder, *SHORT_RUN)
    return found


def run_command(*words: str) -> None:
    """A command of `sightline` in this process, without what it prints on success."""
    from flows.cli import main as sightline

    sys.argv = ["sightline", *words]
    try:
        sightline()
    except SystemExit as end:
        if end.code:
            raise


_entered: set[CodeType] | None = None
"""The functions that have run since `entered_files` began; None where none is counted."""


@contextmanager
def entered_files() -> Iterator[set[str]]:
    """The product's files whose functions run in any thread during the `with` block; filled at its end."""
    global _entered
    found: set[str] = set()
    _entered = codes = set()
    try:
        yield found
    finally:
        _entered = None
        # Not the body of a class or module, nor a lambda or comprehension in it, which an import runs.
        named = (code for code in codes if code.co_flags & inspect.CO_NEWLOCALS and not code.co_name.startswith("<"))
        places = (Path(code.co_filename) for code in named)
        found.update(
            str(place.relative_to(ROOT))
            for place in places
            if place.is_relative_to(ROOT) and place.relative_to(ROOT).parts[0] in PACKAGES
        )


def _profile(frame: FrameType, event: str, argument: object) -> None:
    if _entered is not None and event == "call":
        _entered.add(frame.f_code)


if __name__ == "__main__":
    threading.setprofile(_profile)  # of every thread that is started from here on
    sys.setprofile(_profile)
    main()
