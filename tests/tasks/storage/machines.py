"""A run on one machine after the other, with a storage between them."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rl_core.checkpoints.store import CheckpointStore
from rl_core.run_directory import RunDirectory
from rl_core.storage.place import Place
from rl_core.storage.store import RunStore
from tasks.resuming.training_start import training_start
from tasks.resuming.training_state import finish_taking_over
from tasks.storage.run_storage import RunStorage
from tests.tasks.continued import Attempt, End, Geometry, attempt, unsynced

EVENTS: list[tuple[str, dict[str, object]]] = []
"""What was reported since the last `forget_events`."""


def log_event(kind: str, **facts: object) -> None:
    EVENTS.append((kind, facts))


def storage_of(run: RunDirectory, place: Place) -> RunStorage:
    """The storage as a process opens it."""
    return RunStorage(RunStore(place.below(run.name), verify=True), run, log_event=log_event)


@contextmanager
def opened(run: RunDirectory, place: Place, geometry: Geometry) -> Iterator[RunStorage]:
    """What a flow's process does around training: the copy is fetched first, and brought up to date at the end."""
    run.root.mkdir(parents=True, exist_ok=True)
    storage = storage_of(run, place)
    store = CheckpointStore(run.checkpoints, save_limit=geometry.save_limit)
    finish_taking_over(run)
    storage.bring_training(geometry.chain, here=lambda: training_start(run, geometry.wanted, store).step)
    try:
        yield storage
    finally:
        storage.close()


def trained(run: RunDirectory, place: Place, geometry: Geometry, end: End | None = None) -> Attempt:
    """Train as a process that copies, until the training's end or its own."""
    with unsynced(), opened(run, place, geometry):
        return attempt(run, geometry, end)


def machine(folder: Path, number: int) -> RunDirectory:
    """The run's folder on a machine."""
    return RunDirectory(folder / f"machine-{number}" / "runs" / "mine")
