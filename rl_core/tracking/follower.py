"""Opens the trackers that a config names, and sends metrics.jsonl to them, from the last step that their servers have.
MLflow is opened elsewhere (tasks.tracking), as it shows more than the steps.

See docs/architecture.md, "Trackers follow".
"""

import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from rl_core.config.run import RunConfig
from rl_core.progress import LogEvent
from rl_core.records.metrics_log import read, read_after
from rl_core.redaction import redact_tree
from rl_core.run_directory import RunDirectory
from rl_core.tracking.console_tracker import ConsoleTracker
from rl_core.tracking.tracker import Table, Tracker, TrackerUnavailable, report_outage

_logger = logging.getLogger(__name__)

SENDING_SECONDS = 2.0
"""Longest time that one `follow` spends on missing steps; the rest is sent by the next call."""
PAUSE_FACTOR = 10.0
"""After a failed attempt, the next one comes after this many times the duration of the failed one. So a server where
every request times out costs a tenth of the time at most, and a server that refuses at once is asked at nearly every
call."""


class TrackerFollower:
    """Keeps one tracker up to date with a run's metrics.jsonl, of which the server says which steps it has: resume,
    outage and late sending are one case. An outage is reported once. `generations` returns, for a step, tables of some
    of its responses, by name."""

    def __init__(
        self,
        tracker: Tracker,
        metrics_path: Path,
        *,
        generations: Callable[[int], Mapping[str, Table]] = lambda step: {},
        log_event: LogEvent | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._tracker = tracker
        self._path = metrics_path
        self._generations = generations
        self._log_event = log_event
        self._clock = clock
        self._last_sent: int | None = None  # unknown until the server is asked, and again after each outage
        self._retry_at = -math.inf
        self._is_out = False

    def follow(self) -> None:
        """Send the steps that the server does not have yet, for a few seconds at most."""
        if self._clock() >= self._retry_at:
            self._attempt(seconds=SENDING_SECONDS)

    def catch_up(self) -> None:
        """Send all missing steps."""
        self._attempt(seconds=math.inf)

    def finish(self) -> None:
        """Send all missing steps and close the tracker."""
        self._attempt(seconds=math.inf, close=True)

    def _attempt(self, *, seconds: float, close: bool = False) -> None:
        started = self._clock()
        try:
            self._send_missing(until=started + seconds)
            if close:
                self._tracker.close()
        except TrackerUnavailable as outage:
            # A step that was sent may have arrived although no answer came: only the server knows.
            self._last_sent = None
            ended = self._clock()
            self._retry_at = ended + PAUSE_FACTOR * (ended - started)
            if not self._is_out:
                report_outage(f"metrics of {self._path.parent.name}", outage, self._log_event)
            self._is_out = True
            return
        if self._is_out:
            _logger.info("the tracker of %s answers again", self._path.parent.name)
        self._is_out = False

    def _send_missing(self, *, until: float) -> None:
        if self._last_sent is None:
            self._last_sent = self._tracker.last_step()
        for record in read_after(self._path, self._last_sent):
            step = record.pop("step")
            for name, table in self._generations(step).items():
                self._tracker.log_generations(step, name, table)
            self._tracker.log_step(step, record)
            self._last_sent = step
            if self._clock() >= until:
                return


def open_trackers(config: RunConfig, run: RunDirectory) -> Iterator[Tracker]:
    """Create the trackers; their servers are contacted later. Raises ImportError where the extra `trackers` is not
    installed, which `sightline plan` reports before."""
    tracking = config.tracking
    shown = redact_tree(config.model_dump(mode="json", exclude={"tracking", "storage", "paths_from"}))
    if tracking.console:
        yield ConsoleTracker(after=max((record["step"] for record in read(run.metrics)), default=-1))
    if tracking.tensorboard:
        from rl_core.tracking.tensorboard_tracker import TensorboardTracker

        yield TensorboardTracker(run.tensorboard)
    if tracking.wandb is not None:
        from rl_core.tracking.wandb_tracker import WandbTracker

        yield WandbTracker(tracking.wandb, run.root, experiment=config.experiment, run_name=run.name, run_config=shown)
    if tracking.swanlab:
        from rl_core.tracking.swanlab_tracker import SwanlabTracker

        yield SwanlabTracker(run.swanlab, experiment=config.experiment, run_name=run.name, run_config=shown)
