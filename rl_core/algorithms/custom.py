"""A user function in place of a built-in loss, estimator or filter."""

from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, Self

from pydantic import field_validator
from typing_extensions import override

from rl_core.algorithms.section import AlgorithmSection
from rl_core.problem import Problem
from rl_core.section import Kwargs, refuse_secrets
from rl_core.user_code.failures import failure_text
from rl_core.user_code.function import file_named, find_function, function_problems


class CustomFunction(AlgorithmSection):
    """A function that a config names, with its keyword arguments."""

    function: str
    """`path/to/file.py:function`, or `package.module:function` of an installed package."""
    kwargs: Kwargs = {}
    """Keyword arguments of the function."""

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
        """Call the function with these inputs and its keyword arguments. It is imported once in each process. Raises
        ValueError, which names the line, if the function does not exist, its import fails, or it raised an exception.
        """
        absolute = self.located(lambda path: Path(path).resolve()).function
        function = _loaded(absolute)
        try:
            return function(*inputs, **self.kwargs)
        except Exception as error:
            text = failure_text(error, find_function(absolute).file.parent)
            raise ValueError(f"{self.function}: {text}") from error

    @override
    def problems(self) -> Iterator[Problem]:
        yield from function_problems(self.function, self.kwargs, takes_input=True)

    @property
    def is_well_written(self) -> bool:
        """Whether its source has no problem."""
        return not any(True for _ in self.problems())


@lru_cache
def _loaded(function: str) -> Callable[..., Any]:
    return find_function(function).load()
