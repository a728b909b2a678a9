"""The paths of everything that belongs to a run (docs/architecture.md, "The run directory is the truth")."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

RUNS_DIR: Final = "runs"
"""Where runs lie by default, relative to the working directory."""


@dataclass(frozen=True, slots=True)
class RunDirectory:
    """The paths of one run. It creates no folder and reads no file."""

    root: Path

    @property
    def name(self) -> str:
        """The run's name: `<experiment>-<config digest>[-<tag>]`."""
        return self.root.name

    @property
    def config(self) -> Path:
        """The resolved configuration, YAML."""
        return self.root / "config.yaml"

    @property
    def inputs(self) -> Path:
        """Copies of the templates and of the files with a user's code that the configuration names, and a record of
        them and of the data."""
        return self.root / "inputs"

    @property
    def lock(self) -> Path:
        """The lock file, held (flock) by the one process that writes the run; it contains the pid of its owner."""
        return self.root / "lock"

    def stage_manifest(self, stage: str) -> Path:
        """Manifest of a finished stage ("prepare", "cold-start", "train-epoch-003", ...)."""
        return self.root / "stages" / f"{stage}.json"

    @property
    def data(self) -> Path:
        """The prepared rows and images with their manifest."""
        return self.root / "data"

    @property
    def initial_model(self) -> Path:
        """Hugging Face folder of the model as configured, before any training."""
        return self.root / "model" / "initial"

    @property
    def base_model(self) -> Path:
        """Hugging Face folder of the model that RL starts from, after the cold start."""
        return self.root / "model" / "base"

    @property
    def metrics(self) -> Path:
        """One JSON line for each step: functions of config, data and seed only."""
        return self.root / "metrics.jsonl"

    @property
    def timings(self) -> Path:
        """One JSON line for each step: wall-clock seconds by phase, tokens per second."""
        return self.root / "timings.jsonl"

    @property
    def events(self) -> Path:
        """One JSON line for each incident: start, resume, failed reward, skipped step."""
        return self.root / "events.jsonl"

    def rollouts(self, step: int) -> Path:
        """Parquet file with the rollouts of one step, their scores and advantages."""
        return self.root / "rollouts" / f"step-{step:06d}.parquet"

    def repeated_rollouts(self, step: int) -> Path:
        """The rollout file that an interrupted attempt left of a step that is repeated; it is moved here until then."""
        return self.root / "repeated-rollouts" / f"step-{step:06d}.parquet"

    def validation(self, step: int) -> Path:
        """Parquet file with the responses to the held-out prompts after one step, and their scores; step 0 is before
        the first step."""
        return self.root / "validations" / f"step-{step:06d}.parquet"

    @property
    def tensorboard(self) -> Path:
        """TensorBoard's event files."""
        return self.root / "tensorboard"

    @property
    def wandb(self) -> Path:
        """The local files of Weights & Biases."""
        return self.root / "wandb"

    @property
    def swanlab(self) -> Path:
        """The local files of SwanLab."""
        return self.root / "swanlab"

    @property
    def checkpoints(self) -> Path:
        """Complete checkpoints `step-NNNNNN`; any other folder in it is unfinished."""
        return self.root / "checkpoints"

    @property
    def taken(self) -> Path:
        """Epochs of another run that are being moved into this one: complete, and only there during the move."""
        return self.root / "taken"

    @property
    def fetched(self) -> Path:
        """Training of this run that is being moved in from its copy elsewhere: complete, and only there during the
        move."""
        return self.root / "fetched"

    def evaluation(self, name: str) -> Path:
        """Folder of one evaluation ("base", "trained"): items.parquet and result.json."""
        return self.root / "evaluations" / name

    @property
    def merged_model(self) -> Path:
        """Hugging Face folder of the trained model."""
        return self.root / "merged"

    @property
    def report(self) -> Path:
        """The self-contained HTML report."""
        return self.root / "report.html"

    @property
    def summary(self) -> Path:
        """summary.json: accuracies, timings, throughput and paths."""
        return self.root / "summary.json"

    @property
    def reproduction(self) -> Path:
        """reproduction.json: how the run compares with its baseline's published number."""
        return self.root / "reproduction.json"

    @property
    def log(self) -> Path:
        """The run's log, appended to by every attempt."""
        return self.root / "run.log"
