"""One algorithm on the small counting task, from rows and cold-started weights that all of them share."""

import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.algorithms.recipes import CONFIG, RECIPES
from rl_core.config.loading import load_config
from rl_core.config.run import RunConfig
from rl_core.evaluation.statistics import Interval, wilson_interval
from rl_core.loop.session import open_session
from rl_core.progress import SilentProgress
from rl_core.records.metrics_log import read
from rl_core.run_directory import RunDirectory
from rl_core.stop import StopRequest


@dataclass(frozen=True, kw_only=True)
class Curve:
    """Held-out greedy accuracy of one run, measured now and then.

    Attributes:
        recipe: Key of RECIPES.
        seed: Of the prompts' order and of the sampling.
        overrides: What the recipe changes of the task's config.
        steps: Training steps after which it was measured; 0 is the cold start.
        accuracy: What was measured then.
        items: Held-out rows.
        seconds: Wall clock of the run, engine start and validations included.
    """

    recipe: str
    seed: int
    overrides: tuple[str, ...]
    steps: tuple[int, ...]
    accuracy: tuple[float, ...]
    items: int
    seconds: float

    @property
    def gain(self) -> float:
        """By how much the accuracy rose in all."""
        return self.accuracy[-1] - self.accuracy[0]

    @property
    def final_interval(self) -> Interval:
        """95 % interval of the last accuracy."""
        return wilson_interval(self.accuracy[-1] * self.items, self.items)

    def write(self, folder: Path) -> None:
        """Into `<recipe>-<seed>.json`."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{self.recipe}-{self.seed}.json").write_text(json.dumps(asdict(self), indent=1) + "\n")

    @classmethod
    def read(cls, path: Path) -> "Curve":
        """Back from its file."""
        return cls(**{name: tuple(v) if isinstance(v, list) else v for name, v in json.loads(path.read_text()).items()})


def train(recipe: str, seed: int, *, prepared: RunDirectory, folder: Path) -> Curve:
    """Train in `folder`, which must not exist."""
    overrides = RECIPES[recipe]
    config = load_config(CONFIG, [*overrides, f"seed={seed}"])
    run = RunDirectory(folder)
    folder.mkdir(parents=True)
    for name in ("data", "model"):
        (folder / name).symlink_to((prepared.root / name).resolve())
    start = time.perf_counter()
    with open_session(config, run, progress=SilentProgress(), stop=StopRequest()) as session:
        session.train_epoch(1)
    measured = [line for line in read(run.metrics) if "val/accuracy" in line]
    return Curve(
        recipe=recipe,
        seed=seed,
        overrides=overrides,
        steps=tuple(int(line["step"]) for line in measured),
        accuracy=tuple(float(line["val/accuracy"]) for line in measured),
        items=held_out(config),
        seconds=round(time.perf_counter() - start, 1),
    )


def held_out(config: RunConfig) -> int:
    """Rows that the accuracies are shares of."""
    assert config.data.validation.type == "counting"
    return config.data.validation.size
