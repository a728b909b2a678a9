"""The tracker that sends a run's steps to MLflow."""

from collections.abc import Callable, Mapping

from typing_extensions import override

from rl_core.tracking.mlflow_runs import MlflowRun
from rl_core.tracking.tracker import STEP_KEY, Table, Tracker


class MlflowTracker(Tracker):
    """One MLflow run, the run of the training stage."""

    def __init__(self, run: MlflowRun, *, system: Callable[[int], Mapping[str, float]] = lambda step: {}) -> None:
        """Send the steps to this run, each with the metrics that `system` returns for it."""
        self._run = run
        self._system = system

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
        self._run.log_metrics({**metrics, **self._system(step), STEP_KEY: float(step)}, step=step)

    @override
    def close(self) -> None:
        """Nothing is buffered."""
