"""Runs that are asked for together and concluded by one page. Imports neither Prefect nor torch, so that a dry run is
quick."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, ClassVar, Final, Self

from flows.printing import command_line
from flows.request import ResolvedRun
from rl_core.run_directory import RUNS_DIR

ASKED: Final = "set.json"
"""What is asked for, in the folder of a set."""
_PAGE: Final = "summary.html"


@dataclass(frozen=True, kw_only=True, slots=True)
class PlannedRun:
    """A run of a set, and what the set calls it."""

    name: str
    resolved: ResolvedRun


@dataclass(frozen=True, kw_only=True, slots=True)
class RunSet(ABC):
    """What is asked for with a set of runs. It has a folder of its own beside the runs, and is resumed by its name.

    Attributes:
        kind: What such a set is called.
        place: Folder below the runs that holds the folders of all such sets.
        starter: The command that carries such a set out.
        title: What the tasks of the runs are called, before the name of each.
        tag: Makes new runs that take nothing over from other runs; None continues the runs without a tag.
    """

    kind: ClassVar[str]
    place: ClassVar[str]
    starter: ClassVar[str]
    title: ClassVar[str]
    tag: str | None = None
    runs_dir: str = RUNS_DIR

    @classmethod
    @abstractmethod
    def of_parameters(cls, parameters: Mapping[str, Any], start: datetime) -> Self:
        """The set in the parameters of a flow run, planned for `start`. Raises ValueError where there is none to
        resume, or what is asked for is refused."""

    @classmethod
    @abstractmethod
    def saved(cls, name: str, runs_dir: str) -> Self:
        """The set of this name that was saved. Raises ValueError, with the sets that there are."""

    @property
    @abstractmethod
    def name(self) -> str:
        """Name of the set. The same name continues the same set."""

    @abstractmethod
    def save(self) -> None:
        """Write what is asked for, so that the set can be resumed by its name."""

    @abstractmethod
    def planned(self) -> Sequence[PlannedRun]:
        """The runs in their order. Raises ValueError when some of them cannot be planned."""

    def fatal_problems(self) -> list[str]:
        """Every problem that would stop one of the runs, as far as the configs alone show it."""
        return []

    @property
    def folder(self) -> Path:
        """Folder of the set's page."""
        return Path(self.runs_dir) / self.place / self.name

    @property
    def page(self) -> Path:
        """The set's page. Its figures are beside it with the ending `.json`, when the set is concluded."""
        return self.folder / _PAGE

    @property
    def command(self) -> str:
        """The command that continues the set."""
        elsewhere = [] if self.runs_dir == RUNS_DIR else ["--runs-dir", self.runs_dir]
        return command_line(["sightline", self.starter, "--resume", self.name, *elsewhere])

    @property
    def is_saved(self) -> bool:
        """Whether the set can be resumed by its name."""
        return self.is_there(self.name, self.runs_dir)

    @classmethod
    def is_there(cls, name: str, runs_dir: str) -> bool:
        """Whether a set of this name was saved."""
        return (Path(runs_dir) / cls.place / name / ASKED).is_file()

    @classmethod
    def saved_folder(cls, name: str, runs_dir: str) -> Path:
        """The folder of a set that was saved. Raises ValueError, with the sets that there are."""
        if cls.is_there(name, runs_dir):
            return Path(runs_dir) / cls.place / name
        known = sorted(found.parent.name for found in Path(runs_dir).glob(f"{cls.place}/*/{ASKED}"))
        raise ValueError(f"no {cls.kind} {name}; {runs_dir}/{cls.place} has {', '.join(known) or 'none'}")

    @classmethod
    def needed_runs(cls, runs_dir: str) -> dict[str, str]:
        """[name of a run] -> why it is needed: it belongs to a set that has no page yet and will read all its runs.

        A set whose runs can no longer be planned cannot be continued, so it needs no run.
        """
        needed: dict[str, str] = {}
        for path in sorted(Path(runs_dir).glob(f"{cls.place}/*/{ASKED}")):
            name = path.parent.name
            if path.with_name(_PAGE).with_suffix(".json").is_file():
                continue
            try:
                planned = cls.saved(name, runs_dir).planned()
            except (ValueError, TypeError, KeyError):
                continue
            needed |= {
                plan.resolved.run.name: f"the {cls.kind} {name} is not finished and needs it" for plan in planned
            }
        return needed
