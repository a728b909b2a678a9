"""docs/metrics.md names every metric of a step."""

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = re.findall(r"`([^`\n]+)`", (ROOT / "docs/metrics.md").read_text())
GROUPS = "actor|agreement|cold_start|critic|filter|kl|off_policy|prompt_length|response_length|reward|val"
METRIC = re.compile(rf"({GROUPS})/[a-z_0-9]+(/[a-z_0-9]+)?")
IN_A_RECORD = re.compile(rf'"((?:{GROUPS})/[a-z_0-9/]+)": \[')


def named_on_the_page() -> set[str]:
    """The metrics between backquotes, and what comes before the last slash of `critic/values/mean`, because the sources
    build such names of two parts."""
    names: set[str] = set()
    whole = ""
    for quoted in PAGE:
        whole = quoted if METRIC.fullmatch(quoted) else whole
        names |= {quoted, whole.rsplit("/", 1)[0]}
        names |= {whole.rsplit("/", 1)[0] + quoted} if quoted.startswith("/") else set()
    return names


def strings(tree: ast.AST) -> Iterator[str]:
    yield from (node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str))


def in_the_sources() -> set[str]:
    """Metrics that a string of the library is, or that a policy loss logs under a name of its own."""
    trees = {path: ast.parse(path.read_text()) for path in (ROOT / "rl_core").rglob("*.py")}
    written = {text for tree in trees.values() for text in strings(tree) if METRIC.fullmatch(text)}
    logged = {
        f"actor/{name}"
        for path, tree in trees.items()
        if path.parent.name == "losses"
        for node in ast.walk(tree)
        if isinstance(node, ast.keyword) and node.arg == "logged" and isinstance(node.value, ast.Dict)
        for name in strings(node.value)
    }
    return written | logged


def in_runs() -> set[str]:
    """Metrics that the committed runs of several recipes have written."""
    return set(IN_A_RECORD.findall((ROOT / "benchmarks/results/same_numbers.json").read_text()))


def phases() -> set[str]:
    """Keys of timings.jsonl. Validation and a save come after the step's time."""
    found = {
        f"{node.args[0].value}_s"
        for path in (ROOT / "rl_core").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "phase"
        and node.args
        and isinstance(node.args[0], ast.Constant)
    }
    return (found - {"validate_s", "save_s"}) | {"total_s", "other_s"}


@pytest.mark.parametrize("found", [in_the_sources, in_runs, phases])
def test_every_metric_has_its_row(found: Callable[[], set[str]]) -> None:
    names = found()
    assert len(names) > 10, "the search finds metrics"
    assert sorted(names - named_on_the_page()) == []
