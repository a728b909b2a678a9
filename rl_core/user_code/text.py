"""User code read as text: the names that a file defines, and the files that it imports from its folder. None of it
runs."""

import ast
import gc
import tokenize
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

_ANY_NAME = "*"


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceText:
    """The top level of a Python file: the names that its import binds (a star import binds "*"), the values of those
    that are plain literals, its functions, and all texts of its code."""

    names: frozenset[str]
    constants: Mapping[str, object]
    functions: Mapping[str, ast.FunctionDef | ast.AsyncFunctionDef]
    texts: frozenset[str]

    def may_define(self, name: str) -> bool:
        """Whether importing the file can bind `name`."""
        return name in self.names or _ANY_NAME in self.names

    def is_async(self, function: str) -> bool:
        """Whether the file defines this function as `async def`."""
        return isinstance(self.functions.get(function), ast.AsyncFunctionDef)

    def parameters(self, function: str) -> list[str]:
        """Names of a function's parameters, as far as the file defines it."""
        definition = self.functions.get(function)
        if definition is None:
            return []
        arguments = definition.args
        return [a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]


def read_source(path: Path) -> SourceText:
    """Parse a file. Raises ValueError where it is no Python, or its encoding is wrong."""
    text = _text_of(path)
    try:
        tree = parse(text, filename=str(path))
    except SyntaxError as error:
        raise ValueError(f"{path} is no Python: line {error.lineno}: {error.msg}") from None
    except (RecursionError, MemoryError):  # of Python's parser
        raise ValueError(f"{path} holds an expression that is nested too deeply for Python") from None
    nodes = list(_module_level(tree))
    return SourceText(
        names=frozenset(name for node in nodes for name in _names_bound_by(node)),
        constants={name: value for node in nodes for name, value in _literals_of(node)},
        functions={node.name: node for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)},
        texts=frozenset(
            node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)
        ),
    )


def parse(code: str | bytes, *, filename: str = "<unknown>") -> ast.Module:
    """`ast.parse` without a search for garbage in the middle.

    A search runs code of any object, and with it perhaps another thread. If that parses too, Python 3.11 raises
    "SystemError: AST constructor recursion depth mismatch" here (python/cpython#106905).
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        return ast.parse(code, filename=filename)
    finally:
        if collects:
            gc.enable()


def _text_of(path: Path) -> str:
    try:
        with tokenize.open(path) as file:
            return file.read()
    except (SyntaxError, UnicodeDecodeError) as error:
        raise ValueError(
            f"{path} is no text that Python can read ({error}): save it as UTF-8, or name its encoding in "
            "the first line"
        ) from None


def _module_level(tree: ast.Module) -> Iterator[ast.AST]:
    """Everything that runs when the file is imported, in order: nothing inside a function or class."""
    waiting: list[ast.AST] = [tree]  # no recursion: a sum of thousands of terms is nested thousands deep
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            waiting += reversed(list(ast.iter_child_nodes(node)))


def _names_bound_by(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.Import | ast.ImportFrom):
        yield from (alias.asname or alias.name.partition(".")[0] for alias in node.names)
    elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id


def _literals_of(node: ast.AST) -> Iterator[tuple[str, object]]:
    if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Constant):
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            if isinstance(target, ast.Name):
                yield target.id, node.value.value


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
