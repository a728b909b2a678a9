"""One picture of every committed curve."""

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

from benchmarks.algorithms.race import Curve
from benchmarks.algorithms.recipes import RECIPES


def curves_in(folder: Path) -> list[Curve]:
    """The curves of a folder of results, in the order of the recipes."""
    order = list(RECIPES)
    return sorted((Curve.read(path) for path in folder.glob("*.json")), key=lambda c: (order.index(c.recipe), c.seed))


def plot(curves: Sequence[Curve], path: Path) -> None:
    """Accuracy over steps, a colour a recipe; seeds of one recipe share it."""
    figure = Figure(figsize=(8.0, 5.0), layout="constrained")
    axes = figure.subplots()
    colours = mpl.colormaps["tab20"].colors  # type: ignore[attr-defined]
    named: set[str] = set()
    for curve in curves:
        axes.plot(
            curve.steps,
            curve.accuracy,
            color=colours[list(RECIPES).index(curve.recipe)],
            label=None if curve.recipe in named else curve.recipe,
            linewidth=1.4,
        )
        named.add(curve.recipe)
    axes.set(xlabel="training step", ylabel=f"held-out greedy accuracy ({curves[0].items} scenes)", ylim=(0, 1))
    axes.set_title("From one cold start: objects counted, 1 to 4", fontsize=11)
    axes.grid(alpha=0.25)
    axes.legend(ncols=2, fontsize=9, frameon=False, loc="upper left")
    figure.savefig(path, dpi=150, metadata={"Software": None})
