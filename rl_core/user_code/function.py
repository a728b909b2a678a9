"""A user function (or class) as a config names it: `path/to/file.py:name`, or `package.module:name` of an installed
package."""

import ast
import difflib
import importlib
import importlib.util
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from rl_core.digests import hash_file
from rl_core.files import NOTHING_THERE, why_no_file
from rl_core.problem import Problem
from rl_core.user_code.failures import failure_text
from rl_core.user_code.modules import import_file
from rl_core.user_code.text import SourceText, files_of, files_of_module, read_source
from rl_core.wording import shortened

FORMS: Final = "path/to/file.py:function, or package.module:function of an installed package"
"""The forms in which a config may name a function."""


@dataclass(frozen=True, kw_only=True, slots=True)
class UserFunction:
    """A user function that was found, `written` as in the config. None of its code has run yet.

    Attributes:
        file: Absolute path of the file that defines it, or imports it from elsewhere.
        module: Dotted name of its module where that is installed; None where the config names a file by its path.
        text: The top level of the file.
    """

    written: str
    name: str
    file: Path
    module: str | None
    text: SourceText

    @property
    def root(self) -> Path:
        """The folder on the import path from which the function is imported."""
        if self.module is None:
            return self.file.parent
        depth = self.module.count(".") + (self.file.name == "__init__.py")
        return self.file.parents[depth]

    @property
    def files(self) -> list[Path]:
        """Its own file, and all that this imports from the same folder or package. Raises OSError."""
        return files_of(self.file) if self.module is None else files_of_module(self.module, self.root)

    @property
    def code(self) -> Mapping[str, str]:
        """SHA-256 of each of `files`, by its path below `root`. Raises OSError."""
        return {file.relative_to(self.root).as_posix(): hash_file(file) for file in self.files}

    def load(self) -> Callable[..., Any]:
        """Import the function. Raises ValueError where that fails, with the line, or gives nothing that can be
        called."""
        return self._callable(self.name, self.load_value())

    def load_value(self) -> object:
        """Import what has this name, whatever it is. Raises ValueError as `load`."""
        value = getattr(self._module(), self.name, None)
        if value is None:
            raise ValueError(f"{self.written}: {self.file} defines no `{self.name}` when it is imported")
        return value

    def load_other(self, name: str) -> Callable[..., Any] | None:
        """Import another function of the same file; None where there is none. Raises ValueError as `load`."""
        value = getattr(self._module(), name, None)
        return None if value is None else self._callable(name, value)

    def _module(self) -> ModuleType:
        try:
            return importlib.import_module(self.module) if self.module else import_file(self.file)
        except (Exception, SystemExit) as error:
            raise ValueError(f"{self.written}: its import failed: {self.failure_text(error)}") from error

    def _callable(self, name: str, value: object) -> Callable[..., Any]:
        if not callable(value):
            raise ValueError(f"{self.written}: `{name}` is {type(value).__name__}, which cannot be called")
        return value

    def failure_text(self, error: BaseException) -> str:
        """An exception that the function raised, in words and with the line."""
        return failure_text(error, self.file.parent)


def is_user_function(written: str) -> bool:
    """Whether a config's text names a user function and not a built-in one."""
    return ":" in written or "/" in written or written.endswith(".py")


def file_named(written: str) -> str | None:
    """The path in `path/to/file.py:name` as it is written; None for any other text."""
    place, _, _ = written.rpartition(":")
    return place if place.endswith(".py") else None


def find_function(written: str) -> UserFunction:
    """Find a function without running any of its code. Raises ValueError, with the nearest name, where there is
    none."""
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


def function_problems(written: str, kwargs: Mapping[str, object], *, takes_input: bool) -> Iterator[Problem]:
    """Why a function cannot be called with `kwargs`, as far as its source shows; `takes_input`: with one more argument
    before these."""
    try:
        function = find_function(written)
    except ValueError as error:
        yield Problem("function", f"{error}", "correct the path or the name")
        return
    definition = function.text.functions.get(function.name)
    if isinstance(definition, ast.AsyncFunctionDef):
        yield Problem("function", f"`{function.name}` is an `async def`", "name a plain function")
    elif definition is not None and not definition.decorator_list:  # a decorator may change the arguments
        yield from argument_problems(definition, kwargs, takes_input=takes_input)


def argument_problems(
    definition: ast.FunctionDef | ast.AsyncFunctionDef,
    kwargs: Mapping[str, object],
    *,
    takes_input: bool,
    given: Collection[str] = (),
    name: str = "",
) -> Iterator[Problem]:
    """Why a function with this definition cannot be called with `kwargs`, and with arguments that are `given` besides:
    one before them (`takes_input`), and some by their names. `name` is what the config calls it, if not as its file."""
    name, arguments = name or definition.name, definition.args
    by_place = [*arguments.posonlyargs, *arguments.args]
    if takes_input and not by_place and arguments.vararg is None:
        yield Problem("function", f"`{name}` takes no input", "give it a first parameter for what it works on")
        return
    first = 1 if takes_input else 0
    taken = [each.arg for each in (*by_place[first:], *arguments.kwonlyargs) if each not in arguments.posonlyargs]
    unknown = [each for each in kwargs if each not in taken] if arguments.kwarg is None else []
    known = {*kwargs, *given, *(each.arg for each in by_place[:first])}
    if wanted := [each for each in required_names(definition) if each not in known]:
        yield Problem("kwargs", f"`{name}` wants {', '.join(wanted)}", "give them a value")
    if unknown:
        hint = nearest(unknown[0], [each for each in taken if each not in known])
        yield Problem("kwargs", f"`{name}` takes no {', '.join(unknown)}{hint}", "correct the names")


def required_names(definition: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    """The parameters without a default, in order."""
    arguments = definition.args
    by_place = [*arguments.posonlyargs, *arguments.args]
    pairs = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    named = [each.arg for each in by_place[: len(by_place) - len(arguments.defaults)]]
    return [*named, *(each.arg for each, default in pairs if default is None)]


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
    except ValueError:  # a module of this process without a place of its own, such as __main__
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
    """The end of a sentence about an unknown name: the nearest one, or all."""
    names = list(names)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    if close:
        return f"; did you mean `{close[0]}`?"
    return f" (there is {', '.join(names)})" if names else ""
