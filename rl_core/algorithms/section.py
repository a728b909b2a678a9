"""The base of the sections of losses, estimators and filters."""

from collections.abc import Iterator
from dataclasses import dataclass

from rl_core.section import Section


@dataclass(frozen=True, slots=True)
class OptionProblem:
    """What is wrong with a section's options.

    Attributes:
        key: The option.
        what: A sentence.
        fix: What to do about it.
        fatal: False for a warning: it works, but perhaps not as meant.
    """

    key: str
    what: str
    fix: str
    fatal: bool = True


class AlgorithmSection(Section):
    """A part of the algorithm that its `type` chooses."""

    type: str

    @property
    def label(self) -> str:
        """Its name where runs are shown."""
        return self.type

    def problems(self) -> Iterator[OptionProblem]:
        """What no bound of a single option can express, told before a run."""
        yield from ()
