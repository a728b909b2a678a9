"""Training curves of runs side by side: `python -m benchmarks.training_curves --output FILE NAME=FOLDER ...`.

FOLDER is a run's folder (`sightline run CONFIG` writes it). FILE.json gets the rewards and the held-out accuracies of
all runs, FILE.png their picture.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

from benchmarks.speed.report import machine_facts
from rl_core.records.metrics_log import read
from rl_core.run_directory import RunDirectory

SMOOTHED_STEPS = 5
"""The picture has the mean reward of so many steps."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingCurve:
    """What a run has recorded.

    Attributes:
        name: Its name in the picture.
        rewards: [step] mean reward, from step 1 on.
        validated_steps: Steps after which it was validated.
        accuracies: Held-out accuracy then.
    """

    name: str
    rewards: Sequence[float]
    validated_steps: Sequence[int]
    accuracies: Sequence[float]

    @classmethod
    def of(cls, name: str, run: RunDirectory) -> "TrainingCurve":
        """The curve of a run."""
        lines = list(read(run.metrics))
        validated = [line for line in lines if "val/accuracy" in line]
        return cls(
            name=name,
            rewards=[float(line["reward/overall"]) for line in lines if "reward/overall" in line],
            validated_steps=[int(line["step"]) for line in validated],
            accuracies=[float(line["val/accuracy"]) for line in validated],
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", nargs="+", metavar="NAME=FOLDER")
    parser.add_argument("--output", type=Path, required=True, help="without suffix")
    arguments = parser.parse_args()
    named = [words.partition("=") for words in arguments.runs]
    curves = [TrainingCurve.of(name, RunDirectory(Path(folder))) for name, _, folder in named]
    facts = machine_facts("benchmarks.training_curves", [f"{name}=RUN" for name, _, _ in named])
    origin = {name: facts[name] for name in ("command", "commit", "uncommitted_changes", "cpu")}
    arguments.output.with_suffix(".json").write_text(
        json.dumps(origin | {"curves": [asdict(curve) for curve in curves]}, indent=1) + "\n"
    )
    plot(curves, arguments.output.with_suffix(".png"))
    for curve in curves:
        sys.stdout.write(f"{curve.name}: held-out accuracy {curve.accuracies[-1]:.3f}\n")


def plot(curves: Sequence[TrainingCurve], path: Path) -> None:
    """Rewards and held-out accuracies over steps."""
    figure = Figure(figsize=(9.0, 3.8), layout="constrained")
    rewards, accuracies = figure.subplots(1, 2)
    colours = mpl.colormaps["tab10"].colors  # type: ignore[attr-defined]
    for colour, curve in zip(colours, curves, strict=False):
        smooth = smoothed(curve.rewards)
        rewards.plot(range(1, len(smooth) + 1), smooth, color=colour, label=curve.name, linewidth=1.4)
        accuracies.plot(curve.validated_steps, curve.accuracies, color=colour, marker="o", markersize=4, linewidth=1.4)
    rewards.set(xlabel="training step", ylabel=f"reward (mean of {SMOOTHED_STEPS} steps)")
    accuracies.set(xlabel="training step", ylabel="held-out accuracy", ylim=(0, 1))
    for axes in (rewards, accuracies):
        axes.grid(alpha=0.25)
    rewards.legend(frameon=False, loc="lower right")
    figure.savefig(path, dpi=150, metadata={"Software": None})


def smoothed(values: Sequence[float]) -> list[float]:
    """The mean of each value and those shortly before it."""
    ends = range(1, len(values) + 1)
    return [sum(own := values[max(0, end - SMOOTHED_STEPS) : end]) / len(own) for end in ends]


if __name__ == "__main__":
    main()
