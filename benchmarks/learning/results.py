"""The committed results of benchmarks.learning: a file for each experiment, and pictures of several."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import fmean, median

import matplotlib as mpl
from matplotlib.figure import Figure

from rl_core.evaluation.statistics import mean_interval
from rl_core.records.metrics_log import read
from rl_core.run_directory import RunDirectory


@dataclass(frozen=True, kw_only=True, slots=True)
class Curve:
    """Held-out accuracy of one run in the mode of its validations, measured now and then.

    Attributes:
        steps: Training steps after which it was measured; 0 is the cold start.
        accuracy: What was measured then.
        commit, cpu: Of what, and where.
    """

    steps: Sequence[int]
    accuracy: Sequence[float]
    commit: str
    cpu: str

    @classmethod
    def of(cls, run: RunDirectory, *, commit: str, cpu: str) -> "Curve":
        """The curve of a finished run."""
        measured = [line for line in read(run.metrics) if "val/accuracy" in line]
        return cls(
            steps=[int(line["step"]) for line in measured],
            accuracy=[float(line["val/accuracy"]) for line in measured],
            commit=commit,
            cpu=cpu,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Learned:
    """What an experiment has learned.

    Attributes:
        name: Its name.
        curves: [seed] -> the curve.
    """

    name: str
    curves: dict[int, Curve] = field(default_factory=dict)

    @property
    def final(self) -> list[float]:
        """The last accuracies, in the order of the seeds."""
        return [self.curves[seed].accuracy[-1] for seed in sorted(self.curves)]

    @property
    def conclusion(self) -> str:
        """Mean, range and median, and the 95 % interval of the mean over seeds (Student's t)."""
        final = self.final
        interval = mean_interval(final)
        if interval is None:
            return f"{final[0]:.3f} with one seed"
        low, high = max(0.0, interval[0]), min(1.0, interval[1])
        return (
            f"mean {fmean(final):.3f} over {len(final)} seeds (95 %: {low:.3f} to {high:.3f}), "
            f"lowest {min(final):.3f}, median {median(final):.3f}, highest {max(final):.3f}"
        )

    def write(self, file: Path) -> None:
        """Write it as JSON."""
        file.parent.mkdir(parents=True, exist_ok=True)
        curves = {seed: asdict(self.curves[seed]) for seed in sorted(self.curves)}
        found = {"command": f"python -m benchmarks.learning {self.name}", "conclusion": self.conclusion}
        file.write_text(json.dumps(found | {"curves": curves}, indent=1) + "\n")

    @classmethod
    def read(cls, file: Path) -> "Learned":
        """Read what `write` has written; nothing where there is no file."""
        curves = json.loads(file.read_text())["curves"] if file.is_file() else {}
        return cls(name=file.stem, curves={int(seed): Curve(**curve) for seed, curve in curves.items()})


def plot(learned: Sequence[Learned], path: Path) -> None:
    """Means over seeds, and the range between the lowest and the highest."""
    figure = Figure(figsize=(8.0, 5.0), layout="constrained")
    axes = figure.subplots()
    colours = mpl.colormaps["tab20"].colors  # type: ignore[attr-defined]
    for colour, one in zip(colours, learned, strict=False):
        curves = list(one.curves.values())
        at_steps = list(zip(*(curve.accuracy for curve in curves), strict=True))
        steps, label = curves[0].steps, f"{one.name} ({len(curves)} seeds)"
        axes.plot(steps, [fmean(values) for values in at_steps], color=colour, label=label, linewidth=1.6)
        lowest, highest = ([bound(values) for values in at_steps] for bound in (min, max))
        axes.fill_between(steps, lowest, highest, color=colour, alpha=0.12, linewidth=0)
    axes.set(xlabel="training step", ylabel="held-out accuracy", ylim=(0, 1))
    axes.grid(alpha=0.25)
    axes.legend(ncols=2, fontsize=9, frameon=False, loc="lower right")
    figure.savefig(path, dpi=150, metadata={"Software": None})
