"""Algorithms learn the same small task from the same cold start, in the same number of steps.

The curves and the picture in benchmarks/results/algorithms are written by these tests.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.algorithms.plot import curves_in, plot
from benchmarks.algorithms.recipes import CONFIG, entries
from benchmarks.algorithms.running import prepared_work, run
from rl_core.config.loading import load_config
from tests.e2e.runs import REPOSITORY

RESULTS = REPOSITORY / "benchmarks" / "results" / "algorithms"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Rows and cold-started weights; the picture is drawn anew when all runs are over."""
    yield prepared_work(tmp_path_factory.mktemp("algorithms"))
    plot(curves_in(RESULTS), RESULTS / "curves.png")


@pytest.mark.parametrize(("recipe", "seed"), entries())
def test_held_out_accuracy_rises(recipe: str, seed: int, work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(REPOSITORY)
    curve = run(recipe, seed, work=work, results=RESULTS)
    assert curve.gain >= 0.2
    assert curve.final_interval[0] > curve.accuracy[0]
    assert curve.steps[-1] == load_config(CONFIG).trainer.max_steps
