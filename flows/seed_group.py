"""A config that is run with several seeds, as it is asked for. Imports neither Prefect nor torch."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Self

from pydantic import Field
from typing_extensions import override

from flows.request import run_of_config, start_tag
from flows.run_set import ASKED, PlannedRun, RunSet
from rl_core.config.loading import ConfigError, dump_config, load_config
from rl_core.config.run import RunConfig
from rl_core.digests import digest_of
from rl_core.files import atomic_write_json, atomic_write_text, read_json
from rl_core.run_directory import RunDirectory
from tasks.cache.stages import experiment_digest

MOST_SEEDS: Final = 100
_LONGEST_NAME: Final = 40
_SEEDS: Final = r"\d+(-\d+)?(\s*,\s*\d+(-\d+)?)*"

Seeds = Annotated[str, Field(pattern=f"^{_SEEDS}$")]
"""Numbers and ranges, as `parse_seeds` reads them and Prefect's form checks them."""

OptionalSeeds = Annotated[str, Field(pattern=f"^({_SEEDS})?$")]
"""Such numbers and ranges, or nothing for the seed of the config."""


def parse_seeds(text: str) -> tuple[int, ...]:
    """`1,3,7-9` -> (1, 3, 7, 8, 9), each seed once, in ascending order. Raises ConfigError for any other text and for
    more than MOST_SEEDS seeds."""
    seeds: set[int] = set()
    for part in text.split(","):
        found = re.fullmatch(r"(\d+)(?:-(\d+))?", part.strip(), re.ASCII)
        first, last = (int(found[1]), int(found[2] or found[1])) if found else (1, 0)
        if first > last:
            raise ConfigError(f"seeds {text!r}: write numbers and ascending ranges, such as 1-5 or 1,3,7-9")
        if len(seeds) + last - first >= MOST_SEEDS:
            raise ConfigError(f"seeds {text!r}: at most {MOST_SEEDS} in one group")
        seeds.update(range(first, last + 1))
    return tuple(sorted(seeds))


def seeds_text(seeds: Sequence[int]) -> str:
    """(1, 3, 7, 8, 9) -> `1,3,7-9`, for ascending seeds."""
    breaks = [place for place, (one, other) in enumerate(pairwise(seeds), start=1) if other != one + 1]
    ranges = [(seeds[start], seeds[end - 1]) for start, end in pairwise([0, *breaks, len(seeds)])]
    return ",".join(f"{first}" if first == last else f"{first}-{last}" for first, last in ranges)


def with_seeds(config: RunConfig, seeds: Sequence[int]) -> dict[int, RunConfig]:
    """[seed] -> the config with this seed; no seeds stand for the config's own."""
    return {seed: config.model_copy(update={"seed": seed}) for seed in seeds or [config.seed]}


def seeds_name(seeds: Sequence[int]) -> str:
    """What stands for the seeds in the name of a folder, which must not become too long."""
    text = seeds_text(seeds)
    return text if len(text) <= _LONGEST_NAME else f"{len(seeds)}-{digest_of(list(seeds))}"


@dataclass(frozen=True, kw_only=True, slots=True)
class SeedGroup(RunSet):
    """A config, whose own seed is not used, that is run with several seeds (ascending). Its folder keeps the config,
    which is not read from its file again."""

    kind: ClassVar[str] = "group of seeds"
    place: ClassVar[str] = "seeds"
    starter: ClassVar[str] = "run"
    title: ClassVar[str] = ""
    config: RunConfig
    seeds: tuple[int, ...]

    @classmethod
    @override
    def of_parameters(cls, parameters: Mapping[str, Any], start: datetime) -> Self:
        if parameters["resume"]:
            return cls.saved(parameters["resume"], parameters["runs_dir"])
        if not parameters["config"]:
            raise ConfigError("give a config file, or a group of seeds to resume")
        return cls(
            config=load_config(Path(parameters["config"]), parameters["overrides"]),
            seeds=parse_seeds(parameters["seeds"]),
            tag=start_tag(start) if parameters["fresh"] else None,
            runs_dir=parameters["runs_dir"],
        )

    @classmethod
    @override
    def saved(cls, name: str, runs_dir: str) -> Self:
        folder = cls.saved_folder(name, runs_dir)
        asked = read_json(folder / ASKED)
        config = load_config(RunDirectory(folder).config)
        return cls(config=config, seeds=tuple(asked["seeds"]), tag=asked["tag"], runs_dir=runs_dir)

    @property
    @override
    def name(self) -> str:
        """The experiment, the recipe's digest, the seeds, and the tag. The same name continues the same group."""
        seeds = f"seeds-{seeds_name(self.seeds)}"
        return "-".join(
            part for part in (self.config.experiment, experiment_digest(self.config), seeds, self.tag) if part
        )

    @override
    def save(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        atomic_write_text(RunDirectory(self.folder).config, dump_config(self.config))
        atomic_write_json(self.folder / ASKED, {"seeds": list(self.seeds), "tag": self.tag})

    @override
    def planned(self) -> list[PlannedRun]:
        """The run of each seed: the run that the config leads to with `seed=K`."""
        return [
            PlannedRun(name=f"seed {seed}", resolved=run_of_config(config, runs_dir=self.runs_dir, tag=self.tag))
            for seed, config in with_seeds(self.config, self.seeds).items()
        ]
