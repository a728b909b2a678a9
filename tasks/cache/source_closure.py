"""The modules of this project that a module imports, directly or indirectly, with digests of their code. They are read,
never imported."""

import ast
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Final

from rl_core.source_code import parse, what_it_does

SOURCES: Final = Path(__file__).parents[2]
"""The folder of the packages of this project, installed or not."""

OWN_PACKAGES: Final = ("rl_core", "tasks", "flows")
"""The packages of this project."""

_HASH_LENGTH = 12
_PYTHON = {".py", ".pyc", ".typed"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """One module.

    Attributes:
        digest: Digest of its code, without comments, docstrings and layout.
        names: Every dotted name that it imports, inside functions too, and every string that may be the name of a
            module of this project, since some modules are run as processes (`python -m`).
    """

    digest: str
    names: frozenset[str]


def closure(
    entries: Iterable[str], *, imported: Iterable[str] = (), without: Iterable[str] = (), sources: Path = SOURCES
) -> Mapping[str, Source]:
    """[name] -> source of the entry modules and of all modules of this project that they import, directly or
    indirectly; sorted. Imports for type checkers do not count.

    Args:
        entries: Names of modules.
        imported: Further dotted names that are imported, as in an import statement.
        without: Modules and packages that are left out unless they are entries, with all that only they import.
        sources: The folder of the packages.

    Raises:
        LookupError: an entry does not exist.
    """
    entries, left_out = list(entries), tuple(without)
    found: dict[str, Source] = {}
    waiting = [*entries, *_with_packages(imported)]
    while waiting:
        name = waiting.pop()
        if name in found or (name not in entries and is_within(name, left_out)):
            continue
        source = read_source(name, sources)
        if source is not None:
            found[name] = source
            waiting += _with_packages([*source.names, name])
        elif name in entries:
            raise LookupError(f"there is no module {name} in {sources}")
    return dict(sorted(found.items()))


def is_within(name: str, packages: Iterable[str]) -> bool:
    """Whether a module is one of these packages, or in one of them."""
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def rooms_of(modules: Mapping[str, Source], sources: Path = SOURCES) -> dict[str, str]:
    """[room, such as `rl_core.algorithms`] -> digest of the code of its modules, and of the files beside them that are
    not Python."""
    parts: dict[str, list[str]] = {}
    for name, source in modules.items():
        parts.setdefault(_room(name), []).append(f"{name} {source.digest}")
    for folder in sorted({_folder(name, sources) for name in modules}):
        room = _room(".".join(folder.relative_to(sources).parts))
        parts.setdefault(room, []).extend(_data_files(folder))
    return {room: _hash("\n".join(lines)) for room, lines in sorted(parts.items()) if lines}


@cache
def read_source(name: str, sources: Path = SOURCES) -> Source | None:
    """Read a module of this project; None where there is none of that name. Each module is read once in a process,
    since an imported module does not change when its file does."""
    file = _file(name, sources)
    if file is None:
        return None
    return _source(file.read_bytes(), name if file.name == "__init__.py" else name.rpartition(".")[0])


@lru_cache(maxsize=1024)
def _source(code: bytes, package: str) -> Source:
    """The module of this text. A copy of the packages has the same texts but for a few."""
    tree = parse(code)
    names = frozenset(_names(tree, package))
    return Source(digest=_hash(what_it_does(tree)), names=names)


def _names(tree: ast.Module, package: str) -> Iterator[str]:
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        match node:
            case ast.If(test=ast.Name(id="TYPE_CHECKING")):
                waiting.extend(node.orelse)
                continue
            case ast.Import():
                yield from (name.name for name in node.names)
            case ast.ImportFrom():
                above = package.split(".")[: len(package.split(".")) + 1 - node.level] if node.level else []
                start = ".".join([*above, *([node.module] if node.module else [])])
                yield from (f"{start}.{name.name}" for name in node.names)
            case ast.Constant(value=str(text)) if _may_name_a_module(text):
                yield text
        waiting.extend(ast.iter_child_nodes(node))


def _may_name_a_module(text: str) -> bool:
    first, *others = text.split(".")
    return first in OWN_PACKAGES and bool(others) and all(part.isidentifier() for part in others)


def _with_packages(names: Iterable[str]) -> Iterator[str]:
    """The names that belong to this project, each with the packages around it, whose own code runs first."""
    for name in names:
        parts = name.split(".")
        if parts[0] in OWN_PACKAGES:
            yield from (".".join(parts[:length]) for length in range(1, len(parts) + 1))


def _file(name: str, sources: Path) -> Path | None:
    place = sources.joinpath(*name.split("."))
    candidates = (place.with_suffix(".py"), place / "__init__.py")
    return next((file for file in candidates if file.is_file()), None)


def _folder(name: str, sources: Path) -> Path:
    file = _file(name, sources)
    assert file is not None, f"{name} was read"
    return file.parent


def _data_files(folder: Path) -> Iterator[str]:
    for file in sorted(folder.iterdir()):
        if file.is_file() and file.suffix not in _PYTHON and not file.name.startswith("."):
            yield f"{file.name} {hashlib.sha256(file.read_bytes()).hexdigest()}"


def _room(name: str) -> str:
    return ".".join(name.split(".")[:2])


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:_HASH_LENGTH]
