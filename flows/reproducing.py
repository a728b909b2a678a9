"""A set of baselines as it is asked for. Imports neither Prefect nor torch, so that a dry run is quick."""

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, ClassVar, Self

from typing_extensions import override

from flows.request import run_of_config, start_tag
from flows.run_set import ASKED, PlannedRun, RunSet
from flows.seed_group import SeedGroup, parse_seeds, seeds_name, with_seeds
from rl_core.config.loading import load_config
from rl_core.config.run import RunConfig
from rl_core.digests import digest_of
from rl_core.files import atomic_write_json, read_json
from tasks.reproduction.published_result import dry_run_problems

BASELINES = Path("configs/baselines")

ALL = "all"
"""Stands for every baseline in BASELINES."""

DEFAULT_SET = (
    "qwen2_5_vl_3b_geo3k_grpo",
    "qwen2_5_vl_3b_clevr_count_grpo",
    "qwen2_5_vl_3b_geoqa8k_grpo",
)
"""What the deployment reproduces: a published baseline of each dataset."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PlannedBaseline(PlannedRun):
    """A run of a baseline, the baseline's file, and its config as it is shipped."""

    path: Path
    baseline: RunConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class BaselineSet(RunSet):
    """A set of baselines (names, config files, or ALL) to reproduce, with `key.path=value` changes to every config, and
    the seeds that each is run with, ascending; none for the seed of its config."""

    kind: ClassVar[str] = "set of baselines"
    place: ClassVar[str] = "reproductions"
    starter: ClassVar[str] = "reproduce"
    title: ClassVar[str] = "reproduce"
    baselines: Sequence[str]
    overrides: Sequence[str] = ()
    seeds: tuple[int, ...] = ()

    @classmethod
    @override
    def of_parameters(cls, parameters: Mapping[str, Any], start: datetime) -> Self:
        runs_dir = parameters["runs_dir"]
        if parameters["resume"]:
            return cls.saved(parameters["resume"], runs_dir)
        if not parameters["baselines"]:
            raise ValueError(f"name the baselines to reproduce, or {ALL}")
        return cls(
            baselines=list(parameters["baselines"]),
            overrides=list(parameters["overrides"]),
            seeds=parse_seeds(parameters["seeds"]) if parameters["seeds"] else (),
            tag=start_tag(start) if parameters["fresh"] else None,
            runs_dir=runs_dir,
        )

    @classmethod
    @override
    def saved(cls, name: str, runs_dir: str) -> Self:
        asked = read_json(cls.saved_folder(name, runs_dir) / ASKED)
        return cls(**asked | {"seeds": tuple(asked["seeds"])}, runs_dir=runs_dir)

    @property
    @override
    def name(self) -> str:
        """A digest of what is asked for, the seeds, and the tag. The same name continues the same set."""
        digest = digest_of([sorted(self.names), sorted(self.overrides)])
        seeds = f"seeds-{seeds_name(self.seeds)}" if self.seeds else None
        return "-".join(part for part in (digest, seeds, self.tag) if part)

    @property
    def names(self) -> list[str]:
        """The names of the baselines, each once."""
        asked = [name for one in self.baselines for name in (all_baselines() if one == ALL else [one])]
        return list(dict.fromkeys(asked))

    @override
    def save(self) -> None:
        # Each baseline is named, since ALL may mean others when the set is resumed.
        asked = {"baselines": self.names, "overrides": list(self.overrides), "seeds": list(self.seeds), "tag": self.tag}
        atomic_write_json(self.folder / ASKED, asked)

    @override
    def planned(self) -> list[PlannedBaseline]:
        return [plan for plans in self.by_baseline() for plan in plans]

    def by_baseline(self) -> list[list[PlannedBaseline]]:
        """For every baseline its runs, one for each seed. Raises ValueError where baselines do not exist or their
        configs are refused; the message names all of them."""
        planned, refused = [], []
        for name in self.names:
            try:
                planned.append(self._planned(name))
            except ValueError as error:
                refused.append(f"{error}")
        if refused:
            raise ValueError("\n".join(refused))
        return planned

    @override
    def fatal_problems(self) -> list[str]:
        return [
            f"{plan.path.stem}: {problem}"
            for plan, *_ in self.by_baseline()
            for problem in dry_run_problems(plan.resolved.config)
            if problem.fatal
        ]

    def _planned(self, name: str) -> list[PlannedBaseline]:
        path = baseline_path(name)
        shipped, config = load_config(path), load_config(path, self.overrides)
        return [
            PlannedBaseline(
                name=f"{path.stem} seed {seed}" if self.seeds else path.stem,
                path=path,
                baseline=shipped,
                resolved=run_of_config(seeded, runs_dir=self.runs_dir, tag=self.tag),
            )
            for seed, seeded in with_seeds(config, self.seeds).items()
        ]


def all_baselines() -> list[str]:
    """The names of all baselines."""
    return sorted(path.stem for path in BASELINES.glob("*.yaml"))


def baseline_path(name: str) -> Path:
    """The config of a baseline, given by name or path. Raises ValueError with the most similar name and all names."""
    for path in (Path(name), BASELINES / f"{name}.yaml"):
        if path.is_file():
            return path
    known = all_baselines()
    nearest = difflib.get_close_matches(name, known, n=1, cutoff=0.0)
    hint = f"; did you mean {nearest[0]}?" if nearest else ""
    raise ValueError(f"there is no baseline {name}{hint} {BASELINES} has {', '.join(known) or 'none'}")


def needed_runs(runs_dir: str) -> dict[str, str]:
    """[name of a run] -> which unfinished set of runs needs it."""
    return BaselineSet.needed_runs(runs_dir) | SeedGroup.needed_runs(runs_dir)
