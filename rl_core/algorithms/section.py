"""The base class of the sections of losses, estimators and filters."""

from collections.abc import Iterator
from dataclasses import dataclass

from rl_core.section import Section


@dataclass(frozen=True, slots=True)
class OptionProblem:
    """A problem with the options of a section.

    Attributes:
        key: The option.
        what: A sentence about the problem.
        fix: What to do about it.
        fatal: Whether it stops the run; if not, it is a warning about a combination that may not be intended.
    """

    key: str
    what: str
    fix: str
    fatal: bool = True


class AlgorithmSection(Section):
    """A part of the algorithm that is chosen by its `type`."""

    type: str

    @property
    def label(self) -> str:
        """Its name on pages and in tables."""
        return self.type

    def problems(self) -> Iterator[OptionProblem]:
        """Problems that the bounds of a single option cannot express, reported before a run."""
        yield from ()
