"""A user's function in place of a built-in loss, estimator or filter."""

import ast
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Self

from pydantic import field_validator

from rl_core.algorithms.section import AlgorithmSection
from rl_core.problem import Problem
from rl_core.section import Kwargs, refuse_secrets
from rl_core.user_code.failures import failure_text
from rl_core.user_code.function import file_named, find_function, nearest


class CustomFunction(AlgorithmSection):
    """A function that a config names, with its keyword arguments."""

    function: str
    """`path/to/file.py:function`, or `package.module:function` of an installed package."""
    kwargs: Kwargs = {}
    """Keyword arguments of the function: numbers, texts, truth values, null, and lists and mappings of them."""

    _secrets_are_refused = field_validator("kwargs")(refuse_secrets)

    @property
    def label(self) -> str:
        """The function's own name."""
        return self.function.rpartition(":")[2]

    @property
    def file(self) -> str | None:
        """The path of its file as configured; None for a function of an installed package."""
        return file_named(self.function)

    def located(self, place: Callable[[str], Path]) -> Self:
        """A copy with the path that `place` returns for its file."""
        if self.file is None:
            return self
        return self.model_copy(update={"function": f"{place(self.file)}:{self.label}"})

    def call(self, *inputs: object) -> Any:
        """Call the function with these inputs and its keyword arguments. It is imported once in each process.

        Raises:
            ValueError: the function does not exist, its import fails, or it raised an exception; the message names the
                line.
        """
        absolute = self.located(lambda path: Path(path).resolve()).function
        function = _loaded(absolute)
        try:
            return function(*inputs, **self.kwargs)
        except Exception as error:
            told = failure_text(error, find_function(absolute).file.parent)
            raise ValueError(f"{self.function}: {told}") from error

    def problems(self) -> Iterator[Problem]:
        """Why the function cannot be called, as far as its source tells; it is not run."""
        try:
            definition = find_function(self.function).text.functions.get(self.label)
        except ValueError as error:
            yield Problem("function", f"{error}", "correct the path or the name")
            return
        if isinstance(definition, ast.AsyncFunctionDef):
            yield Problem("function", f"`{self.label}` is an `async def`", "name a plain function")
        elif definition is not None and not definition.decorator_list:  # a decorator may change the arguments
            yield from _argument_problems(definition, self.kwargs)

    @property
    def is_well_written(self) -> bool:
        """Whether its source has no problem."""
        return not any(True for _ in self.problems())


@lru_cache
def _loaded(function: str) -> Callable[..., Any]:
    return find_function(function).load()


def _argument_problems(definition: ast.FunctionDef, kwargs: Mapping[str, object]) -> Iterator[Problem]:
    """Problems of a function without a parameter for its input, with unknown arguments, or with missing arguments."""
    name, arguments = definition.name, definition.args
    by_place = [*arguments.posonlyargs, *arguments.args]
    if not by_place and arguments.vararg is None:
        yield Problem("function", f"`{name}` takes no input", "give it a first parameter for what it works on")
        return
    optional = len(arguments.defaults)
    wanted = [each.arg for each in by_place[1 : len(by_place) - optional]]
    pairs = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    wanted += [each.arg for each, default in pairs if default is None]
    taken = [each.arg for each in (*by_place[1:], *arguments.kwonlyargs) if each not in arguments.posonlyargs]
    if missing := [each for each in wanted if each not in kwargs]:
        yield Problem("kwargs", f"`{name}` wants {', '.join(missing)}", "give them a value")
    if arguments.kwarg is None and (unknown := [each for each in kwargs if each not in taken]):
        hint = nearest(unknown[0], taken)
        yield Problem("kwargs", f"`{name}` takes no {', '.join(unknown)}{hint}", "correct the names")
