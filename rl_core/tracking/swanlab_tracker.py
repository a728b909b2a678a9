"""The tracker that writes a run's steps to SwanLab's local records."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import swanlab
from typing_extensions import override

from rl_core.tracking.tracker import STEP_KEY, Table, Tracker


class SwanlabTracker(Tracker):
    """A folder that `swanlab watch` shows. SwanLab's records cannot be continued: each process writes all steps."""

    def __init__(self, folder: Path, *, experiment: str, run_name: str, run_config: Mapping[str, Any]) -> None:
        self._folder = folder
        self._experiment = experiment
        self._run_name = run_name
        self._run_config = dict(run_config)
        self._run: swanlab.Run | None = None
        self._last = -1

    @override
    def last_step(self) -> int:
        return self._last

    @override
    def log_generations(self, step: int, name: str, table: Table) -> None:
        """Write a text for each row, since local records have no tables."""
        rows = zip(*table.values(), strict=True)
        texts = ["\n".join(f"{column}: {value}" for column, value in zip(table, row, strict=True)) for row in rows]
        self._open().log({name: [swanlab.Text(text) for text in texts]}, step=step)

    @override
    def log_step(self, step: int, metrics: Mapping[str, float]) -> None:
        self._open().log({**metrics, STEP_KEY: step}, step=step)
        self._last = step

    @override
    def close(self) -> None:
        if self._run is not None:
            self._run.finish()
            self._run = None

    def _open(self) -> "swanlab.Run":
        if self._run is None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._run = swanlab.init(
                project=self._experiment,
                experiment_name=self._run_name,
                config=self._run_config,
                logdir=str(self._folder),
                mode="local",
                settings=swanlab.Settings(  # nothing about the machine, and no copy of the terminal's output
                    metadata_collect=False,
                    collect_hardware=False,
                    collect_runtime=False,
                    requirements_collect=False,
                    hardware_monitor=False,
                    log_proxy_type="none",
                ),
                log_level="warning",
            )
        return self._run
