"""The files that a user's code consists of: its own file, and the files that it imports from the same folder."""

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path

from rl_core.user_code.text import parse


def files_of(path: Path) -> list[Path]:
    """A file and all files that it imports from its own folder, directly or not. Raises OSError."""
    return _closure([path], path.parent, package=None)


def files_of_module(name: str, root: Path) -> list[Path]:
    """An installed module below `root`, the packages that hold it, and what these import from the outermost one. Raises
    OSError."""
    package = name.partition(".")[0]
    return _closure(list(_files_named(name, root)), root, package=package)


def imported_names(files: Iterable[Path], root: Path) -> set[str]:
    """Dotted names that files below `root` import and that lead to none of them; some name functions. Raises
    OSError."""
    known = set(files)
    names = {name for file in known for name in _imported(file, root)}
    return {name for name in names if known.isdisjoint(_files_named(name, root))}


def _closure(waiting: list[Path], root: Path, *, package: str | None) -> list[Path]:
    """Some files and all that they import from below `root`, sorted; imports of one package only, unless it is None."""
    found: set[Path] = set()
    while waiting:
        file = waiting.pop()
        if file not in found:
            found.add(file)
            names = (name for name in _imported(file, root) if package in (None, name.partition(".")[0]))
            waiting += (neighbour for name in names for neighbour in _files_named(name, root))
    return sorted(found)


def _files_named(name: str, root: Path) -> Iterator[Path]:
    """The files of modules and packages below `root` that an import of this name runs."""
    place = root
    for part in name.split("."):
        place /= part
        yield from (target for target in (place.with_suffix(".py"), place / "__init__.py") if target.is_file())


def _imported(file: Path, root: Path) -> Iterator[str]:
    """Dotted names in the imports of a file, inside functions too; some name functions and lead to no file."""
    try:
        tree = parse(file.read_bytes())
    except (SyntaxError, RecursionError, MemoryError):  # loading the file will say what is wrong with it
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            start = [node.module] if node.module else []
            if node.level:
                package = file.parent.relative_to(root).parts
                start = [*package[: len(package) + 1 - node.level], *start]
            yield from (".".join([*start, name.name]) for name in node.names)
