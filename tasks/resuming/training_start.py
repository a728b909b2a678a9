"""Finds out where training goes on: after the newest intact checkpoint of this training.

Training differs from the other stages: its epochs continue one another in the same files, and the store removes old
checkpoints on purpose. So a finished epoch needs no checkpoint of its own to be valid; it is valid while there is an
intact checkpoint of the same training at its end or after it. Whether a checkpoint belongs to the same training is
decided by the note of the epoch that was started last: its digest covers all epochs before it.

Nothing here writes.
"""

import math
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from rl_core.checkpoints.manifest import Checkpoint
from rl_core.checkpoints.store import CheckpointStore
from rl_core.config.training import TrainerConfig
from rl_core.digests import FileRecord
from rl_core.files import read_json
from rl_core.loop.target import Target
from rl_core.planning.epoch_spans import EpochSpans
from rl_core.records.metrics_log import read, readable_steps, validated_steps
from rl_core.run_directory import RunDirectory
from tasks.cache.manifests import (
    StageManifest,
    WantedStage,
    altered_output,
    manifests_of_epochs,
    read_manifest,
)
from tasks.cache.software import Software, continued
from tasks.cache.stages import Chain, ConfigStages, changed_parts


@dataclass(frozen=True, kw_only=True, slots=True)
class WantedTraining:
    """The training that is asked for; `whole` stands for all of its epochs together, and the last of
    `total_steps` ends the last one."""

    chain: Chain
    spans: EpochSpans
    total_steps: int
    trainer: TrainerConfig
    whole: WantedStage

    def ends(self, number: int, step: int) -> bool:
        """Whether an epoch, counted from 1, is whole that ended with this step."""
        return self.spans.has_passed(number) or step == min(self.spans.end(number), self.total_steps)

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
        lost: Which record of the steps before is lost, in words; None when all are there.
        trained_by: The software that made the steps before; empty where its record is lost.
    """

    epochs: list[StageManifest]
    step: int
    again: int = 0
    ended: bool = False
    keep_until: float = math.inf
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
        if not (self.step or self.again or lost):
            return ""
        where = f"continues after step {self.step}" if self.step else "starts again at step 1"
        again = f"; {self.again} step(s) of the interrupted run are done again" if self.again else ""
        return f"training {where}{again}{lost}"


def training_start(run: RunDirectory, wanted: WantedTraining, store: CheckpointStore) -> TrainingStart:
    """Find out where a training goes on in a run.

    It goes on after the newest intact checkpoint of this training. If a record of a step before this checkpoint is
    lost, it goes on after an older checkpoint with all records, provided that this is one of the newest that the store
    keeps: no more steps are repeated for a lost record than for a damaged checkpoint.
    """
    finished = finished_epochs(run, wanted)
    saved = [found.step for found in store.complete()]
    recorded = readable_steps(run.metrics)
    newest = _step_of(store.latest())
    loss = first_loss(run, finished, until=newest)
    step = newest if loss is None else _step_of(store.latest(until=loss.step - 1))
    if step not in [0, *saved][-wanted.trainer.save_limit :]:
        step = newest
    kept = [epoch for epoch in finished if last_step([epoch]) <= step]
    return TrainingStart(
        epochs=kept,
        step=step,
        again=max([0, *saved, *recorded]) - step,
        ended=has_ended(run, kept, wanted),
        keep_until=math.inf if step == newest else step,
        lost=loss.what if loss else None,
        trained_by=_trained_by(run, kept) if step else {},
    )


def finished_epochs(run: RunDirectory, wanted: WantedTraining) -> list[StageManifest]:
    """The epochs of this run that are finished as they are wanted, from the first up to the first one that is not: an
    epoch that an earlier `trainer.max_steps` has cut is not, unless the training ends there."""
    finished: list[StageManifest] = []
    for number, (stage, digest) in enumerate(wanted.chain, start=1):
        manifest = read_manifest(run, stage)
        if manifest is None or manifest.digest != digest:
            break
        if not (wanted.ends(number, last_step([manifest])) or has_reached_target(run, wanted.trainer, [manifest])):
            break
        finished.append(manifest)
    return finished


def has_ended(run: RunDirectory, epochs: Sequence[StageManifest], wanted: WantedTraining) -> bool:
    """Whether no epoch follows these finished ones."""
    return len(epochs) == len(wanted.chain) or has_reached_target(run, wanted.trainer, epochs)


def has_reached_target(run: RunDirectory, trainer: TrainerConfig, epochs: Sequence[StageManifest]) -> bool:
    """Whether `trainer.stop_at`, as it is now, ends the training with the last of these epochs."""
    if trainer.stop_at is None or not epochs:
        return False
    last = last_step(epochs)
    return Target(trainer.stop_at, (line for line in read(run.metrics) if line["step"] <= last)).reached_at == last


def _trained_by(run: RunDirectory, kept: Sequence[StageManifest]) -> Software:
    """The software that made the steps from which training goes on; the note of the last epoch has that of all."""
    begun = begun_epoch(run)
    if begun is not None:
        return begun.software
    return kept[-1].software if kept else {}


def started_file(run: RunDirectory) -> Path:
    """The file with the note of the epoch that was started last."""
    return run.stage_manifest("training").with_suffix(".started")


def last_step(epochs: Sequence[StageManifest]) -> int:
    """The last step of the last epoch; 0 where there is no epoch."""
    return int(epochs[-1].result["last_step"]) if epochs else 0


def another_training(run: RunDirectory, stages: ConfigStages) -> list[str]:
    """What makes the training in this run another one than that of these stages; nothing where it is the same. The note
    of the epoch that was started last decides, else the finished epochs."""
    begun = begun_epoch(run)
    trained = [(epoch.stage, epoch.digest, epoch.parts) for epoch in recorded_epochs(run)]
    for stage, digest, parts in [(begun.name, begun.digest, begun.parts)] if begun else trained:
        if (stage, digest) not in stages.epochs(int(stage.rpartition("-")[2])):
            return changed_parts(parts, stages.parts["training"]) or ["what came before"]
    return []


def recorded_epochs(run: RunDirectory) -> list[StageManifest]:
    """The epochs with a manifest, by their numbers."""
    return [manifest for path in manifests_of_epochs(run) if (manifest := read_manifest(run, path.stem)) is not None]


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


def step_files(run: RunDirectory, validated: Container[int], step: int) -> list[Path]:
    """The rollouts of a step, and the responses of a validation after it; the first step has the one before it."""
    asked = (0, 1) if step == 1 else (step,)
    return [run.rollouts(step), *(run.validation(at) for at in asked if at in validated)]


def records_of(epoch: StageManifest) -> dict[str, FileRecord]:
    """The files of a finished epoch other than checkpoints."""
    return {path: output for path, output in epoch.outputs.items() if not path.startswith("checkpoints/")}


def first_loss(run: RunDirectory, finished: Sequence[StageManifest], *, until: int) -> Loss | None:
    """Find the first step, up to `until`, with a lost record; None when all records are there. Of steps in no finished
    epoch it can only be found out whether a file is missing; that there was a validation is seen in their metrics.
    """
    if until < 1:
        return None  # nothing is lost before the first step, since the validation before training is repeated
    losses = [*_lost_metrics(run, finished, until), *_lost_files(run, finished, until)]
    return min(losses, key=lambda loss: loss.step, default=None)


def _lost_metrics(run: RunDirectory, finished: Sequence[StageManifest], until: int) -> Iterator[Loss]:
    recorded = readable_steps(run.metrics)
    first = 0 if run.validation(0).exists() else 1
    missing = next((step for step in range(first, until + 1) if step not in recorded), None)
    if missing is not None:
        yield Loss(step=max(1, missing), what=f"{run.metrics} has no readable line of step {missing}")
        return
    for epoch in finished:
        problem = _problem(run, epoch.outputs, run.metrics)
        if problem:
            yield Loss(step=int(epoch.result["first_step"]), what=problem)
            return


def _lost_files(run: RunDirectory, finished: Sequence[StageManifest], until: int) -> Iterator[Loss]:
    known = {path: output for epoch in finished for path, output in epoch.outputs.items()}
    validated = validated_steps(run.metrics)
    for step in range(1, until + 1):
        for file in step_files(run, validated, step):
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
