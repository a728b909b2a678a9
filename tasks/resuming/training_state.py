"""Brings a run's files into the state from which training goes on, and takes over epochs of another run.

Only files are removed that the training does not continue from (tasks.resuming.training_start).
"""

import dataclasses
import logging
from collections.abc import Iterable
from pathlib import Path

from rl_core.checkpoints.store import CheckpointStore
from rl_core.files import atomic_write_json, remove_folder, replace_folder, scratch_folder
from rl_core.records.metrics_log import RunLogs, lines_until
from rl_core.run_directory import RunDirectory
from rl_core.run_lock import ensure_held
from tasks.cache.manifests import StageManifest, WantedStage, altered_output, manifests_of_epochs
from tasks.cache.reuse import adopt, other_runs, place_files, remove_paths
from tasks.resuming.training_start import (
    TrainingStart,
    WantedTraining,
    begun_epoch,
    finished_epochs,
    has_ended,
    last_step,
    records_of,
    started_file,
    training_start,
)

logger = logging.getLogger(__name__)


def take_up_training(
    run: RunDirectory, wanted: WantedTraining, store: CheckpointStore, *, elsewhere: bool
) -> TrainingStart:
    """Decide where training goes on, and bring this run's files into that state. Called once for each start of a run.

    Epochs of another run are taken over when it has more finished epochs than this run. A training loop that is opened
    now resumes where the result says.
    """
    ensure_held(run.lock)
    finish_taking_over(run)
    own = training_start(run, wanted, store)
    if elsewhere:
        taken = _take_longer(run, wanted, len(own.epochs))
        if taken:
            ended = has_ended(run, taken, wanted)
            return TrainingStart(epochs=taken, step=last_step(taken), ended=ended, trained_by=wanted.whole.software)
    _make_room(run, wanted, own)
    return own


def mark_started(run: RunDirectory, epoch: WantedStage) -> None:
    """Note which epoch is trained by which software, so that a later start knows whose unfinished files are here."""
    path = started_file(run)
    path.parent.mkdir(parents=True, exist_ok=True)
    note = {"stage": epoch.name, "digest": epoch.digest, "parts": dict(epoch.parts), "software": dict(epoch.software)}
    atomic_write_json(path, note)


def complete_epochs(run: RunDirectory, wanted: WantedTraining) -> list[StageManifest]:
    """The finished epochs, from the first, that another run can take over from this one: the same software made them,
    their records are unchanged, and the last of them still has its checkpoints."""
    complete: list[StageManifest] = []
    for number, manifest in enumerate(finished_epochs(run, wanted), start=1):
        reason = wanted.epoch(number, made_by=wanted.whole.software).why_not_taken(manifest)
        if reason is not None:
            logger.info("%s of %s is not taken over: %s", manifest.stage, run.name, reason)
        if reason is not None or altered_output(run.root, records_of(manifest)):
            break
        complete.append(manifest)
    while complete and not _has_checkpoints(run, complete[-1]):
        complete.pop()
    return complete


def longest_to_take(
    runs: Iterable[RunDirectory], wanted: WantedTraining
) -> tuple[RunDirectory | None, list[StageManifest]]:
    """The run with the most epochs that can be taken over, and these epochs."""
    candidates = [(other, complete_epochs(other, wanted)) for other in runs]
    return max(candidates, key=lambda candidate: len(candidate[1]), default=(None, []))


def why_no_epochs(runs: Iterable[RunDirectory], wanted: WantedTraining, *, more_than: int) -> str | None:
    """Why no epochs are taken over from a run that has finished more than `more_than`; None where no run has."""
    for other in runs:
        finished = finished_epochs(other, wanted)
        if len(finished) > more_than:
            reasons = [
                wanted.epoch(number, made_by=wanted.whole.software).why_not_taken(epoch)
                for number, epoch in enumerate(finished, start=1)
            ]
            reason = next(filter(None, reasons), "its files have changed")
            return f"not taken over from {other.name}: {reason}"
    return None


def _make_room(run: RunDirectory, wanted: WantedTraining, start: TrainingStart) -> None:
    """Remove what training does not continue from: records and checkpoints after a lost record, and the manifests of
    epochs that are not finished any more."""
    logs, made_by = RunLogs(run), start.made_by(wanted.whole.software)
    begun = begun_epoch(run)
    if start.lost or (begun is not None and begun.software != made_by):
        # The steps that are repeated generate their rollouts again: what is recorded of them was altered, or other
        # software comes to other weights.
        logs.cut_back(start.step or -1)
    if not start.ended:
        mark_started(run, wanted.epoch(len(start.epochs) + 1, made_by=made_by))
    later = [path for path in run.checkpoints.glob("step-*") if _step_of(path) > start.keep_until]
    remove_paths(sorted(later, key=_step_of, reverse=True))
    logs.drop_unreadable()
    kept = {epoch.stage for epoch in start.epochs}
    remove_paths(path for path in manifests_of_epochs(run) if path.stem not in kept)


def _take_longer(run: RunDirectory, wanted: WantedTraining, more_than: int) -> list[StageManifest]:
    source, epochs = longest_to_take(other_runs(run), wanted)
    if source is None or len(epochs) <= more_than:
        return []
    # The other run may change meanwhile, so this run's own epochs are removed only once all files have been linked.
    with scratch_folder(run.taken) as folder:
        held = RunDirectory(folder)
        if source.timings.is_file():  # they are not results, so no manifest has them
            held.timings.parent.mkdir(parents=True, exist_ok=True)
            held.timings.write_bytes(b"".join(lines_until(source.timings, last_step(epochs))))
        # Without the checkpoints of those of which retention has removed one; the last epoch has its own.
        whole = [
            epoch if _has_checkpoints(source, epoch) else dataclasses.replace(epoch, outputs=records_of(epoch))
            for epoch in epochs
        ]
        if not all(adopt(epoch, source=source, into=held) for epoch in whole):
            return []
        replace_folder(folder, run.taken)
    finish_taking_over(run)
    return finished_epochs(run, wanted)


def finish_taking_over(run: RunDirectory) -> None:
    """Replace this run's training by that in `taken`, which goes last, so that a kill in between costs nothing."""
    if not run.taken.is_dir():
        return
    started_file(run).unlink(missing_ok=True)
    remove_paths(manifests_of_epochs(run))
    remove_paths(run.checkpoints.glob("step-*"))
    RunLogs(run).cut_back(-1)
    place_files(run.taken, run.root)
    remove_folder(run.taken)


def _has_checkpoints(run: RunDirectory, manifest: StageManifest) -> bool:
    records = records_of(manifest)
    files = {path: output for path, output in manifest.outputs.items() if path not in records}
    return bool(files) and altered_output(run.root, files) is None


def _step_of(path: Path) -> int:
    number = path.name.removeprefix("step-")
    return int(number) if number.isdecimal() else 0
