"""The trackers that send a run's steps to MLflow: all metrics to the run of the training, with what each worker has
used in a step, and the learning curves to its parent."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from typing_extensions import override

from rl_core.records.metrics_log import read_after
from rl_core.tracking.mlflow_runs import MlflowRun
from rl_core.tracking.tracker import STEP_KEY, Table, Tracker

PREFIX: Final = "system/"
"""MLflow shows metrics with this prefix on a page of their own."""


class MlflowTracker(Tracker):
    """One MLflow run, the run of the training stage. System metrics come from `timings`, a run's timings.jsonl.

    MLflow's own monitor is not used: it samples by the clock and sees only the machine that it runs on, while these
    belong to the steps and come from every machine.
    """

    def __init__(self, run: MlflowRun, *, timings: Path | None = None) -> None:
        self._run = run
        self._timings = timings
        self._lines: dict[int, dict[str, Any]] = {}

    @override
    def last_step(self) -> int:
        step = self._run.latest_metric(STEP_KEY)
        return -1 if step is None else int(step)

    @override
    def log_generations(self, step: int, name: str, table: Table) -> None:
        """The table `<name>/step-NNNNNN.json` replaces an earlier one."""
        self._run.log_table(f"{name}/step-{step:06d}.json", table)

    @override
    def log_step(self, step: int, metrics: Mapping[str, float]) -> None:
        if self._timings is not None and step not in self._lines:
            self._lines = {line["step"]: line for line in read_after(self._timings, step - 1)}
        system = system_metrics(self._lines.pop(step, {}))
        self._run.log_metrics({**metrics, **system, STEP_KEY: float(step)}, step=step)

    @override
    def close(self) -> None:
        """Nothing is buffered."""


class LearningCurves(Tracker):
    """The curves by which pipelines are compared, in the parent run. `curves` maps their names to metrics of a step, of
    which the first that it has is sent; MLflow's pages show charts in the order of the names."""

    def __init__(self, run: MlflowRun, curves: Mapping[str, Sequence[str]]) -> None:
        self._run = run
        self._curves = curves

    @override
    def last_step(self) -> int:
        step = self._run.latest_metric(STEP_KEY)
        return -1 if step is None else int(step)

    @override
    def log_generations(self, step: int, name: str, table: Table) -> None:
        """They are in the training's run."""

    @override
    def log_step(self, step: int, metrics: Mapping[str, float]) -> None:
        shown = {
            curve: metrics[next(name for name in names if name in metrics)]
            for curve, names in self._curves.items()
            if any(name in metrics for name in names)
        }
        self._run.log_metrics({**shown, STEP_KEY: float(step)}, step=step)

    @override
    def close(self) -> None:
        """Nothing is buffered."""


def system_metrics(line: Mapping[str, Any]) -> dict[str, float]:
    """[`system/worker_0/busy_share`, ...] -> value, of a line of timings.jsonl: seconds, peaks of memory and busy share
    (of 1) of each worker."""
    columns = line.get("workers", {})
    found = {
        f"{PREFIX}worker_{worker}/{name}": float(value)
        for name, values in columns.items()
        for worker, value in enumerate(values)
        if isinstance(value, int | float)
    }
    shares = {
        f"{PREFIX}worker_{worker}/busy_share": 1.0 - idle / total
        for worker, (idle, total) in enumerate(zip(columns.get("idle_s", ()), columns.get("total_s", ()), strict=True))
    }
    return found | shares
