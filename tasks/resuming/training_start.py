"""Finds out where training goes on: after the newest intact checkpoint of this training.

Training differs from the other stages: its epochs continue one another in the same files, and the store removes old
checkpoints on purpose. So a finished epoch needs no checkpoint of its own to be valid; it is valid while there is an
intact checkpoint of the same training at its end or after it. Whether a checkpoint belongs to the same training is
decided by the note of the epoch that was started last: its digest covers all epochs before it.

Nothing here writes.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from rl_core.checkpoints.manifest import Checkpoint
from rl_core.checkpoints.store import CheckpointStore
from rl_core.config.training import TrainerConfig
from rl_core.files import read_json
from rl_core.records.metrics_log import readable_steps
from rl_core.run_directory import RunDirectory
from tasks.cache.manifests import StageManifest, WantedStage, manifests_of_epochs, reached_target, read_manifest
from tasks.cache.software import Software, continued
from tasks.cache.stage_parts import what_changed
from tasks.resuming.step_records import first_loss

Chain = Sequence[tuple[str, str]]
"""Name and digest of every epoch's stage, in order."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WantedTraining:
    """The training that is asked for; `training` stands for all of its epochs together."""

    chain: Chain
    trainer: TrainerConfig
    whole: WantedStage

    def epoch(self, number: int, *, made_by: Software) -> WantedStage:
        """An epoch, counted from 1, as `made_by` makes it and the epochs before it."""
        name, digest = self.chain[number - 1]
        return replace(self.whole, name=name, digest=digest, software=made_by)


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingStart:
    """Where training goes on.

    Attributes:
        epochs: The finished epochs that remain valid, in order.
        step: Training goes on after this step; 0 is the model that reinforcement learning starts from.
        again: Number of finished steps that are repeated.
        ended: Whether every epoch is finished.
        keep_until: Checkpoints of later steps are removed.
        changed: Why the training in the run's folder is another one, in words; None when it is this one.
        dropped: The last step of the other training; 0 where there is none.
        lost: Which record of the steps before is lost, in words; None when all are there.
        trained_by: The software that made the steps before; empty where its record is lost.
    """

    epochs: list[StageManifest]
    step: int
    again: int = 0
    ended: bool = False
    keep_until: float = math.inf
    changed: str | None = None
    dropped: int = 0
    lost: str | None = None
    trained_by: Software = field(default_factory=dict)

    def made_by(self, software: Software) -> Software:
        """The software of the whole training if it goes on with `software`."""
        return continued(self.trained_by, software, step=self.step) if self.step else software

    @property
    def costs(self) -> bool:
        """Whether more is lost than by an interruption."""
        return bool(self.dropped or self.lost)

    def __str__(self) -> str:
        """A sentence for people; empty when there is nothing to say."""
        lost = f" ({self.lost})" if self.lost else ""
        if self.ended:
            return f"training is complete{lost}" if lost else ""
        if not (self.step or self.again or lost or self.dropped):
            return ""
        where = f"continues after step {self.step}" if self.step else "starts again at step 1"
        again = f"; {self.again} step(s) of the interrupted run are done again" if self.again else ""
        dropped = f"; what was trained up to step {self.dropped} is dropped: {self.changed}" if self.dropped else ""
        return f"training {where}{again}{lost}{dropped}"


def training_start(run: RunDirectory, wanted: WantedTraining, store: CheckpointStore) -> TrainingStart:
    """Find out where a training goes on in a run.

    It goes on after the newest intact checkpoint of this training. If a record of a step before this checkpoint is
    lost, it goes on after an older checkpoint with all records, provided that this is one of the newest that the store
    keeps: no more steps are repeated for a lost record than for a damaged checkpoint.
    """
    finished = finished_epochs(run, wanted.chain)
    changed = _change(run, wanted)
    own_until = math.inf if changed is None else last_step(finished)
    saved = [found.step for found in store.complete()]
    recorded = readable_steps(run.metrics)
    newest = _step_of(store.latest(until=own_until))
    loss = first_loss(run, wanted.trainer, finished, until=newest)
    step = newest if loss is None else _step_of(store.latest(until=loss.step - 1))
    if step not in [0, *(at for at in saved if at <= own_until)][-wanted.trainer.save_limit :]:
        step = newest
    kept = [epoch for epoch in finished if last_step([epoch]) <= step]
    reached = [0, *saved, *recorded]
    return TrainingStart(
        epochs=kept,
        step=step,
        again=max(at for at in reached if at <= own_until) - step,
        ended=has_ended(kept, wanted),
        keep_until=own_until if step == newest else step,
        changed=changed,
        dropped=max((at for at in reached if at > own_until), default=0),
        lost=loss.what if loss else None,
        trained_by=_trained_by(run, kept, changed) if step else {},
    )


def finished_epochs(run: RunDirectory, chain: Chain) -> list[StageManifest]:
    """The finished epochs of the chain in this run, from the first epoch up to the first one that is not finished."""
    finished: list[StageManifest] = []
    for stage, digest in chain:
        manifest = read_manifest(run, stage)
        if manifest is None or manifest.digest != digest or not _tells_its_steps(manifest):
            break
        finished.append(manifest)
    return finished


def has_ended(epochs: Sequence[StageManifest], wanted: WantedTraining) -> bool:
    """Whether no epoch follows these finished ones."""
    return len(epochs) == len(wanted.chain) or bool(epochs and reached_target(epochs[-1]))


def _trained_by(run: RunDirectory, kept: Sequence[StageManifest], changed: str | None) -> Software:
    """The software that made the steps from which training goes on; the note of the last epoch has that of all."""
    begun = begun_epoch(run) if changed is None else None
    if begun is not None:
        return begun.software
    return kept[-1].software if kept else {}


def started_file(run: RunDirectory) -> Path:
    """The file with the note of the epoch that was started last."""
    return run.stage_manifest("training").with_suffix(".started")


def last_step(epochs: Sequence[StageManifest]) -> int:
    """The last step of the last epoch; 0 where there is no epoch."""
    return int(epochs[-1].result["last_step"]) if epochs else 0


def _tells_its_steps(epoch: StageManifest) -> bool:
    return all(isinstance(epoch.result.get(name), int) for name in ("first_step", "last_step"))


def _change(run: RunDirectory, wanted: WantedTraining) -> str | None:
    """Why the training in this run is another training than the wanted one, in words; None when it is the same. The
    note of the epoch that was started last decides, else the finished epochs."""
    begun = begun_epoch(run)
    known = (
        [(begun.name, begun.digest, begun.parts)]
        if begun
        else [(epoch.stage, epoch.digest, epoch.parts) for epoch in _epochs_with_manifest(run)]
    )
    other = next((parts for stage, digest, parts in known if (stage, digest) not in wanted.chain), None)
    return None if other is None else what_changed(other, wanted.whole.parts)


def begun_epoch(run: RunDirectory) -> WantedStage | None:
    """The epoch that was started last; None when there is no note of it, or when the note is damaged."""
    try:
        note = dict(read_json(started_file(run)))
        return WantedStage(
            name=str(note["stage"]),
            digest=str(note["digest"]),
            parts=dict(note["parts"]),
            software={str(name): str(value) for name, value in dict(note["software"]).items()},
        )
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _epochs_with_manifest(run: RunDirectory) -> Iterator[StageManifest]:
    for path in manifests_of_epochs(run):
        manifest = read_manifest(run, path.stem)
        if manifest is not None:
            yield manifest


def _step_of(checkpoint: Checkpoint | None) -> int:
    return checkpoint.step if checkpoint else 0
