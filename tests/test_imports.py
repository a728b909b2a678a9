"""No module imports one that imports it: not at its top, not inside a function, not for types alone."""

from graphlib import CycleError, TopologicalSorter

import grimp


def test_no_circle_of_imports_is_hidden_anywhere() -> None:
    graph = grimp.build_graph("flows", "sightline_tools", "tasks", "rl_core", cache_dir=None)
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    circle: list[str] = []
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        circle = error.args[1][::-1]
    assert not circle, " -> ".join(circle)
