"""The files that a user's reward function is made of: its own, and the neighbours that it imports."""

import ast
from collections.abc import Iterator
from pathlib import Path


def files_of(path: Path) -> list[Path]:
    """A reward file and what it imports from its own folder, directly or not; sorted. Read, never run.

    Raises:
        OSError: a file cannot be read.
    """
    found: set[Path] = set()
    waiting = [path]
    while waiting:
        file = waiting.pop()
        if file not in found:
            found.add(file)
            waiting += _neighbours(file, path.parent)
    return sorted(found)


def _neighbours(file: Path, folder: Path) -> Iterator[Path]:
    """Modules and packages below `folder`, which is on the import path, that `file` imports."""
    for name in _imported(file, folder):
        place = folder
        for part in name.split("."):
            place /= part
            yield from (target for target in (place.with_suffix(".py"), place / "__init__.py") if target.is_file())


def _imported(file: Path, folder: Path) -> Iterator[str]:
    """Dotted names in the imports of a file, those inside functions too; some are of functions and lead nowhere."""
    try:
        tree = ast.parse(file.read_bytes())
    except (SyntaxError, RecursionError, MemoryError):  # it imports nothing then, and whoever loads it says why
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            start = [node.module] if node.module else []
            if node.level:
                package = file.parent.relative_to(folder).parts
                start = [*package[: len(package) + 1 - node.level], *start]
            yield from (".".join([*start, name.name]) for name in node.names)
