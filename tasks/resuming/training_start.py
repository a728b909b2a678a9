"""Finds out where training goes on: after the newest intact checkpoint of this training.

Training differs from the other stages: its epochs continue one another in the same files, and the store removes old
checkpoints on purpose. So a finished epoch needs no checkpoint of its own to be valid; it is valid while there is an
intact checkpoint of the same training at its end or after it. Whether a checkpoint belongs to the same training is
decided by the note of the epoch that was started last: its digest covers all epochs before it.

Nothing here writes.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from rl_core.checkpoints.manifest import Checkpoint
from rl_core.checkpoints.store import CheckpointStore
from rl_core.config.training import TrainerConfig
from rl_core.digests import FileRecord
from rl_core.files import read_json
from rl_core.records.metrics_log import readable_steps
from rl_core.run_directory import RunDirectory
from tasks.cache.manifests import (
    StageManifest,
    WantedStage,
    altered_output,
    reached_target,
    read_manifest,
    read_manifests,
)
from tasks.cache.software import Software, continued
from tasks.cache.stages import Chain, kind_of, what_changed


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
        if manifest is None or manifest.digest != digest:
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


def _change(run: RunDirectory, wanted: WantedTraining) -> str | None:
    """Why the training in this run is another training than the wanted one, in words; None when it is the same. The
    note of the epoch that was started last decides, else the finished epochs."""
    begun = begun_epoch(run)
    epochs = [manifest for manifest in read_manifests(run) if kind_of(manifest.stage) == "train"]
    trained = [(epoch.stage, epoch.digest, epoch.parts) for epoch in epochs]
    known = [(begun.name, begun.digest, begun.parts)] if begun else trained
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


def _step_of(checkpoint: Checkpoint | None) -> int:
    return checkpoint.step if checkpoint else 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Loss:
    """The first step with a lost record, and what is lost, in words."""

    step: int
    what: str


def step_files(run: RunDirectory, trainer: TrainerConfig, step: int) -> list[Path]:
    """The rollouts of a step, and the responses of a validation after it; the first step has the one before it."""
    asked = (0, 1) if step == 1 else (step,)
    return [run.rollouts(step), *(run.validation(at) for at in asked if trainer.validates_at(at))]


def records_of(epoch: StageManifest) -> dict[str, FileRecord]:
    """The files of a finished epoch other than checkpoints."""
    return {path: output for path, output in epoch.outputs.items() if not path.startswith("checkpoints/")}


def first_loss(
    run: RunDirectory, trainer: TrainerConfig, finished: Sequence[StageManifest], *, until: int
) -> Loss | None:
    """Find the first step, up to `until`, with a lost record; None when all records are there. Of steps in no finished
    epoch it can only be found out whether a file is missing.
    """
    if until < 1:
        return None  # nothing is lost before the first step, since the validation before training is repeated
    losses = [*_lost_metrics(run, trainer, finished, until), *_lost_files(run, trainer, finished, until)]
    return min(losses, key=lambda loss: loss.step, default=None)


def _lost_metrics(
    run: RunDirectory, trainer: TrainerConfig, finished: Sequence[StageManifest], until: int
) -> Iterator[Loss]:
    recorded = readable_steps(run.metrics)
    first = 0 if trainer.validates_at(0) else 1
    missing = next((step for step in range(first, until + 1) if step not in recorded), None)
    if missing is not None:
        yield Loss(step=max(1, missing), what=f"{run.metrics} has no readable line of step {missing}")
        return
    for epoch in finished:
        problem = _problem(run, epoch.outputs, run.metrics)
        if problem:
            yield Loss(step=int(epoch.result["first_step"]), what=problem)
            return


def _lost_files(
    run: RunDirectory, trainer: TrainerConfig, finished: Sequence[StageManifest], until: int
) -> Iterator[Loss]:
    known = {path: output for epoch in finished for path, output in epoch.outputs.items()}
    for step in range(1, until + 1):
        for file in step_files(run, trainer, step):
            problem = _problem(run, known, file)
            if problem:
                yield Loss(step=step, what=problem)
                return


def _problem(run: RunDirectory, known: Mapping[str, FileRecord], file: Path) -> str | None:
    """What is wrong with a file, as a sentence; None when it is as its manifest says, or is in no manifest."""
    name = file.relative_to(run.root).as_posix()
    if name in known:
        problem = altered_output(run.root, {name: known[name]})
        return problem and f"{run.root}/{problem}"
    return None if file.is_file() else f"{file} is missing"
