"""The tracker that writes a run's steps as TensorBoard event files."""

from collections.abc import Mapping
from pathlib import Path

from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
from torch.utils.tensorboard import SummaryWriter
from typing_extensions import override

from rl_core.tracking.generations import as_markdown
from rl_core.tracking.tracker import STEP_KEY, Table, Tracker


class TensorboardTracker(Tracker):
    """A folder of event files. Every process writes its own, which begins with a record that makes TensorBoard ignore
    later steps of earlier files, since a killed process may have left an incomplete step."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._writer: SummaryWriter | None = None

    @override
    def last_step(self) -> int:
        return max((last_step_in(path) for path in sorted(self._folder.glob("events.out.tfevents.*"))), default=-1)

    @override
    def log_generations(self, step: int, name: str, table: Table) -> None:
        self._open(step).add_text(name, as_markdown(table), step)

    @override
    def log_step(self, step: int, metrics: Mapping[str, float]) -> None:
        writer = self._open(step)
        for name, value in {**metrics, STEP_KEY: float(step)}.items():
            writer.add_scalar(name, value, step)
        writer.flush()

    @override
    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _open(self, step: int) -> SummaryWriter:
        if self._writer is None:
            self._writer = SummaryWriter(str(self._folder), purge_step=step)
        return self._writer


def last_step_in(path: Path) -> int:
    """The last step that is complete in an event file, -1 for none; an incomplete end is ignored."""
    steps = [
        event.step
        for event in EventFileLoader(str(path)).Load()
        if any(value.tag == STEP_KEY for value in event.summary.value)
    ]
    return max(steps, default=-1)
