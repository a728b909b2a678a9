"""The tracker that sends a run's steps to Weights & Biases, to its server or to offline files."""

import hashlib
import logging
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import wandb
from typing_extensions import override

from rl_core.config.stages import WandbConfig
from rl_core.tracking.tracker import STEP_KEY, Table, Tracker, TrackerUnavailable

PATIENCE = {"WANDB_INIT_TIMEOUT": "10", "WANDB_FINISH_TIMEOUT": "60"}
"""W&B's own defaults wait for a server for 90 seconds when a run opens, and without limit when it ends."""


class WandbTracker(Tracker):
    """One W&B run, which is found again by an id made from `run_name`. Online, the server says which steps it has.
    Offline, files may lack the last steps of a killed process: each process writes the run from its first step on and
    replaces the earlier files, so that `wandb sync` sends each step once."""

    def __init__(
        self, config: WandbConfig, folder: Path, *, experiment: str, run_name: str, run_config: Mapping[str, Any]
    ) -> None:
        for name, value in PATIENCE.items():
            os.environ.setdefault(name, value)
        logging.getLogger("wandb").propagate = False  # it has a log of its own
        self._config = config
        self._folder = folder
        self._project = config.project or experiment
        self._run_name = run_name
        self._run_config = dict(run_config)
        self._run: wandb.Run | None = None
        self._last = -1

    @override
    def last_step(self) -> int:
        if self._config.mode == "online":
            self._open()
        return self._last

    @override
    def log_generations(self, step: int, name: str, table: Table) -> None:
        rows = [list(row) for row in zip(*table.values(), strict=True)]
        self._log(step, {name: wandb.Table(columns=list(table), data=rows)}, commit=False)

    @override
    def log_step(self, step: int, metrics: Mapping[str, float]) -> None:
        self._log(step, {**metrics, STEP_KEY: step}, commit=True)
        self._last = step

    @override
    def close(self) -> None:
        """Wait until everything is sent, for a minute at most; `wandb sync` then sends the rest."""
        if self._run is None:
            return
        run, self._run = self._run, None
        try:
            run.finish()
        except (wandb.errors.Error, TimeoutError, OSError) as error:
            raise TrackerUnavailable(f"W&B: {error}") from error
        finally:
            wandb.teardown()  # only the end of its service means that the files are whole

    def _log(self, step: int, values: dict[str, Any], *, commit: bool) -> None:
        run = self._open()
        try:
            run.log(values, step=step, commit=commit)
        except (wandb.errors.Error, OSError) as error:
            raise TrackerUnavailable(f"W&B: {error}") from error

    def _open(self) -> "wandb.Run":
        if self._run is None:
            try:
                self._run = self._start()
            except (wandb.errors.Error, TimeoutError, OSError) as error:
                wandb.teardown()  # else its service holds the run's id, and the next attempt is refused
                raise TrackerUnavailable(f"W&B: {error}") from error
            self._last = int(self._run.summary.get(STEP_KEY, self._last))
        return self._run

    def _start(self) -> "wandb.Run":
        online = self._config.mode == "online"
        settings = _settings()
        if online and wandb.setup(settings=settings).settings.api_key is None and wandb.api.api_key is None:
            # wandb.init would ask for it on the terminal, and a scheduled run has none.
            raise TrackerUnavailable("W&B: no API key; set WANDB_API_KEY, call `wandb login`, or take mode: offline")
        if not online:
            shutil.rmtree(self._folder / "wandb", ignore_errors=True)
        self._folder.mkdir(parents=True, exist_ok=True)
        return wandb.init(
            project=self._project,
            entity=self._config.entity,
            name=self._config.name or self._run_name,
            group=self._config.group,
            tags=self._config.tags,
            notes=self._config.notes,
            id=run_id(self._run_name),
            resume="allow" if online else None,
            reinit="create_new",
            dir=str(self._folder),
            mode=self._config.mode,
            config=self._run_config,
            settings=settings,
        )


def run_id(run_name: str) -> str:
    """W&B's id of a run: letters and digits only, the same for equal names."""
    return hashlib.sha256(run_name.encode()).hexdigest()[:16]


def _settings() -> wandb.Settings:
    """Without output or a copy of the terminal's output, without code and machine, with short time limits."""
    return wandb.Settings(
        silent=True,
        console="off",
        disable_git=True,
        disable_code=True,
        save_code=False,
        finish_timeout_raises=True,
        x_disable_meta=True,
        x_disable_machine_info=True,
        x_disable_stats=True,
        x_save_requirements=False,
    )
