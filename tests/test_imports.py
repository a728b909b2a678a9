"""No module imports one that imports it: not at its top, not inside a function, not for types alone."""

from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import grimp
import pytest


def circle_of_imports(*packages: str) -> list[str]:
    """Modules that each import the next one, the last one being the first again; empty where there is no circle."""
    graph = grimp.build_graph(*packages, cache_dir=None)
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        return list(reversed(error.args[1]))
    return []


def test_no_circle_of_imports_is_hidden_anywhere() -> None:
    circle = circle_of_imports("flows", "sightline_tools", "tasks", "rl_core")
    assert not circle, " -> ".join(circle)


@pytest.mark.parametrize(
    "hidden",
    [
        "from mirrors.left import looks",
        "def reflect():\n    from mirrors.left import looks",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from mirrors import left",
    ],
    ids=["top", "function", "types"],
)
def test_every_way_to_close_a_circle_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hidden: str) -> None:
    (tmp_path / "mirrors").mkdir()
    (tmp_path / "mirrors" / "__init__.py").touch()
    (tmp_path / "mirrors" / "left.py").write_text("from mirrors import right\n")
    (tmp_path / "mirrors" / "right.py").write_text(f"{hidden}\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert sorted(set(circle_of_imports("mirrors"))) == ["mirrors.left", "mirrors.right"]
