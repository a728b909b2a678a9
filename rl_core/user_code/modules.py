"""Imports a user's file under a name by which the processes that it starts can import it too.

These inherit the import path, on which the file's folder comes last, so that a file never replaces a library. A file
with the name of a library (EasyR1's own example is math.py) is therefore imported under another name (math_py), which
an environment variable tells the other processes."""

import importlib
import importlib.util
import json
import os
import sys
from collections.abc import Iterator, Sequence
from importlib.machinery import ModuleSpec
from itertools import count
from pathlib import Path
from types import ModuleType

_VARIABLE = "SIGHTLINE_USER_FILES"


class _UserFiles:
    """Finds the user's files whose own names belong to libraries."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """The place of a user module; None for any other module."""
        file = _renamed().get(name)
        return None if file is None else importlib.util.spec_from_file_location(name, file)


def import_file(path: Path) -> ModuleType:
    """Import a user's file, once in each process. Raises whatever the file raises."""
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    find_user_files()
    return importlib.import_module(_name_of(path))


def find_user_files() -> None:
    """From now on imports find the user's files that have been given other names."""
    if _UserFiles not in sys.meta_path:
        sys.meta_path.append(_UserFiles)


def _name_of(path: Path) -> str:
    """The file's own name where an import of it leads to this file; else a similar one, which child processes know
    too."""
    renamed = _renamed()
    for name, file in renamed.items():
        if file == str(path):
            return name
    importlib.invalidate_caches()
    if "." not in path.stem and _origin(path.stem) == path:
        return path.stem
    base = f"{path.stem.replace('.', '_')}_py"
    name = next(name for name in _numbered(base) if name not in renamed and _origin(name) is None)
    os.environ[_VARIABLE] = json.dumps(renamed | {name: str(path)})
    return name


def _renamed() -> dict[str, str]:
    renamed: dict[str, str] = json.loads(os.environ.get(_VARIABLE, "{}"))
    return renamed


def _origin(name: str) -> Path | None:
    """Where an import of this name leads: an empty path for a module without a file, None where there is no module."""
    if name in sys.modules:
        file = getattr(sys.modules[name], "__file__", None)
        return Path(file or "")
    spec = importlib.util.find_spec(name)
    return None if spec is None else Path(spec.origin or "")


def _numbered(base: str) -> Iterator[str]:
    yield base
    yield from (f"{base}_{number}" for number in count(2))
