"""A set of baselines as it is asked for. Imports neither Prefect nor torch, so that a dry run is quick."""

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from flows.printing import command_line
from flows.request import ResolvedRun, resolve_run, start_tag
from rl_core.config.run import RunConfig
from rl_core.digests import digest_of
from rl_core.files import atomic_write_json, read_json
from rl_core.run_directory import RUNS_DIR
from tasks.reproduction.published_result import dry_run_problems
from tasks.reproduction.record import FIGURES

BASELINES = Path("configs/baselines")

ALL = "all"
"""Stands for every baseline in BASELINES."""

DEFAULT_SET = (
    "qwen2_5_vl_3b_geo3k_grpo",
    "qwen2_5_vl_3b_clevr_count_grpo",
    "qwen2_5_vl_3b_geoqa8k_grpo",
)
"""What the deployment reproduces: a published baseline of each dataset."""

_SETS = "reproductions"


@dataclass(frozen=True, kw_only=True, slots=True)
class PlannedBaseline:
    """A baseline of a set: its name, its config as it is shipped, and its run."""

    name: str
    baseline: RunConfig
    resolved: ResolvedRun


@dataclass(frozen=True, kw_only=True, slots=True)
class BaselineSet:
    """A set of baselines to reproduce.

    Attributes:
        baselines: Names, config files, or ALL.
        overrides: `key.path=value` texts that change keys of every config.
        tag: Makes new runs that take nothing over from other runs; None continues the runs without a tag.
        runs_dir: Folder of the runs, in which the folder of the set is, too.
    """

    baselines: Sequence[str]
    overrides: Sequence[str] = ()
    tag: str | None = None
    runs_dir: str = RUNS_DIR

    @classmethod
    def of_parameters(cls, parameters: Mapping[str, Any], start: datetime) -> Self:
        """The set in the parameters of a flow run, which is planned to start at `start`.

        Raises:
            ValueError: there is no set to resume, or no baseline is named.
        """
        runs_dir = parameters["runs_dir"]
        if parameters["resume"]:
            return cls._saved(parameters["resume"], runs_dir)
        if not parameters["baselines"]:
            raise ValueError(f"name the baselines to reproduce, or {ALL}")
        return cls(
            baselines=list(parameters["baselines"]),
            overrides=list(parameters["overrides"]),
            tag=start_tag(start) if parameters["fresh"] else None,
            runs_dir=runs_dir,
        )

    @classmethod
    def _saved(cls, name: str, runs_dir: str) -> Self:
        path = Path(runs_dir) / _SETS / name / "set.json"
        if not path.is_file():
            known = sorted(found.parent.name for found in Path(runs_dir).glob(f"{_SETS}/*/set.json"))
            raise ValueError(f"no set {name}; {runs_dir}/{_SETS} has {', '.join(known) or 'none'}")
        return cls(**read_json(path), runs_dir=runs_dir)

    @property
    def name(self) -> str:
        """Name of the set: a digest of what is asked for, and the tag. The same name continues the same set."""
        digest = digest_of([sorted(self.names), sorted(self.overrides)])
        return digest if self.tag is None else f"{digest}-{self.tag}"

    @property
    def names(self) -> list[str]:
        """The names of the baselines, each once."""
        asked = [name for one in self.baselines for name in (all_baselines() if one == ALL else [one])]
        return list(dict.fromkeys(asked))

    @property
    def folder(self) -> Path:
        """Folder of the set's page."""
        return Path(self.runs_dir) / _SETS / self.name

    @property
    def command(self) -> str:
        """The command that continues the set."""
        elsewhere = [] if self.runs_dir == RUNS_DIR else ["--runs-dir", self.runs_dir]
        return command_line(["sightline", "reproduce", "--resume", self.name, *elsewhere])

    @property
    def is_saved(self) -> bool:
        """Whether the set can be resumed by its name."""
        return self._file.is_file()

    def save(self) -> None:
        """Write what is asked for, so that the set can be resumed by its name. Each baseline is named, since ALL may
        mean others by then."""
        asked = {"baselines": self.names, "overrides": list(self.overrides), "tag": self.tag}
        atomic_write_json(self._file, asked)

    @property
    def _file(self) -> Path:
        return self.folder / "set.json"

    def planned(self) -> list[PlannedBaseline]:
        """The config and the run of every baseline.

        Raises:
            ValueError: baselines do not exist or their configs are refused; the message names all of them.
        """
        planned, refused = [], []
        for name in self.names:
            try:
                planned.append(self._planned(name))
            except ValueError as error:
                refused.append(f"{error}")
        if refused:
            raise ValueError("\n".join(refused))
        return planned

    def _planned(self, name: str) -> PlannedBaseline:
        path = baseline_path(name)
        shipped = resolve_run(path, runs_dir=self.runs_dir).config
        resolved = resolve_run(path, self.overrides, runs_dir=self.runs_dir, tag=self.tag)
        return PlannedBaseline(name=path.stem, baseline=shipped, resolved=resolved)


def runs_of_unfinished_sets(runs_dir: str) -> dict[str, str]:
    """[name of a run] -> why it is needed: it belongs to a set that has no page yet and will read all its runs.

    A set whose baselines no longer exist cannot be continued, so it needs no run.
    """
    needed: dict[str, str] = {}
    for path in sorted(Path(runs_dir).glob(f"{_SETS}/*/set.json")):
        name = path.parent.name
        if path.with_name(FIGURES).is_file():
            continue
        try:
            planned = BaselineSet.of_parameters({"resume": name, "runs_dir": runs_dir}, datetime.now(UTC)).planned()
        except (ValueError, TypeError):
            continue
        needed |= {
            plan.resolved.run.name: f"the set {name} of baselines is not finished and needs it" for plan in planned
        }
    return needed


def all_baselines(folder: Path = BASELINES) -> list[str]:
    """The names of all baselines."""
    return sorted(path.stem for path in folder.glob("*.yaml"))


def baseline_path(name: str, folder: Path = BASELINES) -> Path:
    """The config of a baseline, given by name or path. Raises ValueError with the most similar name and all names."""
    for path in (Path(name), folder / f"{name}.yaml"):
        if path.is_file():
            return path
    known = all_baselines(folder)
    nearest = difflib.get_close_matches(name, known, n=1, cutoff=0.0)
    hint = f"; did you mean {nearest[0]}?" if nearest else ""
    raise ValueError(f"there is no baseline {name}{hint} {folder} has {', '.join(known) or 'none'}")


def refuse_fatal(planned: Sequence[PlannedBaseline]) -> None:
    """Raise ValueError with every problem that would stop one of the baselines."""
    problems = [
        f"{plan.name}: {problem}"
        for plan in planned
        for problem in dry_run_problems(plan.resolved.config)
        if problem.fatal
    ]
    if problems:
        raise ValueError("\n".join(problems))
