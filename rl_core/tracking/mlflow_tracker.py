"""The tracker that sends a run's steps to MLflow."""

from collections.abc import Callable, Mapping

from rl_core.tracking.mlflow_runs import MlflowRun
from rl_core.tracking.tracker import STEP_KEY, Table


class MlflowTracker:
    """Implements Tracker with one MLflow run, the run of the training stage."""

    def __init__(self, run: MlflowRun, *, system: Callable[[int], Mapping[str, float]] = lambda step: {}) -> None:
        """Send the steps to this run, each with the metrics that `system` returns for it."""
        self._run = run
        self._system = system

    def last_step(self) -> int:
        """The last step that MLflow has, -1 for none. Raises TrackerUnavailable."""
        step = self._run.latest_metric(STEP_KEY)
        return -1 if step is None else int(step)

    def log_generations(self, step: int, name: str, table: Table) -> None:
        """Write the table `<name>/step-NNNNNN.json`, which replaces an earlier one. Raises TrackerUnavailable."""
        self._run.log_table(f"{name}/step-{step:06d}.json", table)

    def log_step(self, step: int, metrics: Mapping[str, float]) -> None:
        """Send the metrics of a step. Raises TrackerUnavailable; the step may have arrived all the same, see
        `last_step`."""
        self._run.log_metrics({**metrics, **self._system(step), STEP_KEY: float(step)}, step=step)

    def close(self) -> None:
        """Does nothing: nothing is buffered."""
