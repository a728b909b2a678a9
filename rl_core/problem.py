"""Problems that a run has before it starts: the key, what is wrong, and what to do about it."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Self


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that a person should change before the run starts: the dotted key or the part of the machine, what is
    wrong, with the numbers, and what to do about it. A section names its own keys. If it is not fatal, the run works,
    but perhaps not as meant; if the run may then learn nothing, its pages say so too (`on_pages`)."""

    where: str
    what: str
    fix: str
    _: KW_ONLY
    fatal: bool = True
    on_pages: bool = False

    def below(self, key: str) -> Self:
        """The problem of a section as seen from above, where the section has this key; empty for the whole config."""
        return replace(self, where=".".join(filter(None, (key, self.where))))

    def __str__(self) -> str:
        return f"{self.where}: {self.what}; {self.fix}"


class PlanError(ValueError):
    """The run cannot work as configured; the message lists every problem, `problems` holds them."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        lines = [f"  {problem}" for problem in problems]
        super().__init__("\n".join([f"{len(problems)} problem(s) before the start", *lines]))
        self.problems = tuple(problems)


def raise_if_fatal(problems: Sequence[Problem]) -> None:
    """Raise PlanError with every fatal problem, if there is any."""
    fatal = [problem for problem in problems if problem.fatal]
    if fatal:
        raise PlanError(fatal)
