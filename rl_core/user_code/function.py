"""A function (or class) of a user's, as a config names it: `path/to/file.py:name`, or `package.module:name` for one
that is installed."""

import difflib
import importlib
import importlib.util
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any, Final

from rl_core.files import NOTHING_THERE, hash_file, why_no_file
from rl_core.user_code.failures import failure_text
from rl_core.user_code.files import files_of, files_of_module
from rl_core.user_code.modules import import_file
from rl_core.user_code.text import SourceText, read_source
from rl_core.wording import shortened

FORMS: Final = "path/to/file.py:function, or package.module:function of an installed package"
"""How a config may name one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class UserFunction:
    """One that was found, and of which nothing has run yet.

    Attributes:
        written: As the config names it.
        name: The part after the colon.
        file: Where it is defined, or imported from elsewhere: an absolute path.
        module: Its dotted name where it is installed; None for a file that is named by its path.
        text: What the file says at its top level.
    """

    written: str
    name: str
    file: Path
    module: str | None
    text: SourceText

    @property
    def root(self) -> Path:
        """The folder on the import path from which it is imported."""
        if self.module is None:
            return self.file.parent
        depth = self.module.count(".") + (self.file.name == "__init__.py")
        return self.file.parents[depth]

    @property
    def files(self) -> list[Path]:
        """The files that decide what it does: its own, and what that imports from beside it, or from its package.
        Raises OSError where one cannot be read."""
        return files_of(self.file) if self.module is None else files_of_module(self.module, self.root)

    @property
    def code(self) -> Mapping[str, str]:
        """Hash of each of `files`, by its place below `root`. Raises OSError where one cannot be read."""
        return {file.relative_to(self.root).as_posix(): hash_file(file) for file in self.files}

    def load(self) -> Callable[..., Any]:
        """Import it, in this process.

        Raises:
            ValueError: the import raised, defines no such name after all, or one that cannot be called; names the line.
        """
        function = self.load_beside(self.name)
        if function is None:
            raise ValueError(f"{self.written}: {self.file} defines no `{self.name}` when it is imported")
        return function

    def load_beside(self, name: str) -> Callable[..., Any] | None:
        """Import another function of the same file; None where there is none. Raises ValueError as `load` does."""
        try:
            module = importlib.import_module(self.module) if self.module else import_file(self.file)
        except (Exception, SystemExit) as error:
            raise ValueError(f"{self.written}: its import failed: {self.failure_text(error)}") from error
        function = getattr(module, name, None)
        if not (function is None or callable(function)):
            raise ValueError(f"{self.written}: `{name}` is {type(function).__name__}, which cannot be called")
        loaded: Callable[..., Any] | None = function
        return loaded

    def failure_text(self, error: BaseException) -> str:
        """An exception that it raised, in words, with the line."""
        return failure_text(error, self.file.parent)


def is_user_function(written: str) -> bool:
    """Whether a config's text names a user's function, and no built-in one."""
    return ":" in written or "/" in written or written.endswith(".py")


def file_named(written: str) -> str | None:
    """The path in `path/to/file.py:name`, as it is written; None for a module of an installed package, and for what
    is neither."""
    place, _, _ = written.rpartition(":")
    return place if place.endswith(".py") else None


def find_function(written: str) -> UserFunction:
    """Find it, without running any of it.

    Raises:
        ValueError: it is not written as it must be, there is no such file or module, what is there is no Python, or
            defines no such name; names the nearest one.
    """
    place, _, name = written.rpartition(":")
    path = file_named(written)
    if not name.isidentifier() or not (path or all(part.isidentifier() for part in place.split("."))):
        raise ValueError(f"{shortened(written)!r} must read {FORMS}")
    file = _existing(written, Path(path)) if path else _module_file(written, place)
    try:
        text = read_source(file)
    except ValueError as error:
        raise ValueError(f"{written!r}: {error}") from None
    if not text.may_define(name):
        raise ValueError(f"{written!r}: {file} defines no `{name}`{nearest(name, sorted(text.names))}")
    return UserFunction(written=written, name=name, file=file, module=None if path else place, text=text)


def _existing(written: str, path: Path) -> Path:
    if (why := why_no_file(path)) is not None:
        reason = "" if why == NOTHING_THERE else f": {why}"
        raise ValueError(f"{shortened(written)!r}: there is no file {shortened(str(path.absolute()))}{reason}")
    return Path(os.path.realpath(path))


def _module_file(written: str, name: str) -> Path:
    """The file of an installed module. Nothing is imported, not even the packages that hold it."""
    first, *inner = name.split(".")
    try:
        spec = importlib.util.find_spec(first)
    except ValueError:  # a module of this process that was imported from nowhere, as __main__
        spec = None
    for part in inner:
        folders = None if spec is None else spec.submodule_search_locations
        spec = None if spec is None or folders is None else PathFinder.find_spec(f"{spec.name}.{part}", folders)
    if spec is None:
        raise ValueError(f"{written!r}: no module {name} is installed; a file of your own is named by its path")
    if spec.origin is None or not spec.origin.endswith(".py"):
        raise ValueError(f"{written!r}: the module {name} is no file of Python")
    return Path(spec.origin)


def nearest(name: str, names: Iterable[str]) -> str:
    """The end of a sentence about a name that there is not: the nearest one, or all."""
    names = list(names)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    if close:
        return f"; did you mean `{close[0]}`?"
    return f" (there is {', '.join(names)})" if names else ""
