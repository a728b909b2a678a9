"""The paths of everything that belongs to a run (docs/architecture.md, "The run directory is the truth")."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

RUNS_DIR: Final = "runs"
"""Where runs lie by default, relative to the working directory."""


class _Below:
    """A path below the folder of a run."""

    def __init__(self, *parts: str) -> None:
        self._parts = parts

    def __get__(self, run: "RunDirectory", owner: type) -> Path:
        return run.root.joinpath(*self._parts)


@dataclass(frozen=True, slots=True)
class RunDirectory:
    """The paths of one run. It creates no folder and reads no file."""

    root: Path

    config = _Below("config.yaml")
    """The resolved configuration, YAML."""
    amendments = _Below("amendments.json")
    """The changes of its recipe with which the training went on; only there where there were any."""
    inputs = _Below("inputs")
    """Copies of the templates and of the files with user code that the configuration names, and a record of
    them and of the data."""
    lock = _Below("lock")
    """The lock file, held (flock) by the one process that writes the run; it contains the pid of its owner."""
    data = _Below("data")
    """The prepared rows and images with their manifest."""
    initial_model = _Below("model", "initial")
    """Hugging Face folder of the model as configured, before any training."""
    base_model = _Below("model", "base")
    """Hugging Face folder of the model that RL starts from, after the cold start."""
    metrics = _Below("metrics.jsonl")
    """One JSON line for each step: functions of config, data and seed only."""
    timings = _Below("timings.jsonl")
    """One JSON line for each step: wall-clock seconds by phase, tokens per second."""
    events = _Below("events.jsonl")
    """One JSON line for each incident: start, resume, failed reward, skipped step."""
    losses = _Below("losses")
    """For each loss of workers a text file: what their threads were doing, or what they have written last."""
    last_output = _Below("last-output.txt")
    """What a process of the run has written last that ended without a word, such as a traceback."""
    tensorboard = _Below("tensorboard")
    """TensorBoard's event files."""
    wandb = _Below("wandb")
    """The local files of Weights & Biases."""
    swanlab = _Below("swanlab")
    """The local files of SwanLab."""
    tool_calls = _Below("tool-calls")
    """What a user's tools have answered in the steps that may be repeated."""
    tool_images = _Below("tool-images")
    """The images that a user's tools have made, which the rollouts name."""
    checkpoints = _Below("checkpoints")
    """Complete checkpoints `step-NNNNNN`; any other folder in it is unfinished."""
    taken = _Below("taken")
    """Training of another run, or of this run's copy elsewhere, that is being moved in: complete, and only there during
    the move."""
    earlier = _Below("earlier")
    """Finished stages that the run has made again with other inputs, each below the beginning of its digest."""
    merged_model = _Below("merged")
    """Hugging Face folder of the trained model."""
    report = _Below("report.html")
    """The self-contained HTML report."""
    summary = _Below("summary.json")
    """summary.json: accuracies, timings, throughput and paths."""
    reproduction = _Below("reproduction.json")
    """reproduction.json: how the run compares with its baseline's published number."""
    log = _Below("run.log")
    """The run's log, appended to by every attempt."""

    @property
    def name(self) -> str:
        """The run's name: `<experiment>-<digest of the recipe>[-<tag>][-<number>]`."""
        return self.root.name

    def stage_manifest(self, stage: str) -> Path:
        """Manifest of a finished stage ("prepare", "cold-start", "train-epoch-003", ...)."""
        return self.root / "stages" / f"{stage}.json"

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

    def evaluation(self, name: str) -> Path:
        """Folder of one evaluation ("base", "trained"): items.parquet and result.json."""
        return self.root / "evaluations" / name
