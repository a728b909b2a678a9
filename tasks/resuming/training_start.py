"""Where training goes on: after the newest intact checkpoint of this training, whatever else is there of it.

Training differs from the other stages: its epochs continue one another in the same files, and the store removes old
checkpoints on purpose. So an epoch that is finished needs no checkpoint of its own to stand; it stands while an intact
one of the same training lies at its end or behind it. What says that a checkpoint is of the same training is the note
of the epoch that was begun last: its digest holds those of all epochs before it.

Nothing here writes.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from rl_core.checkpoints.manifest import Checkpoint
from rl_core.checkpoints.store import CheckpointStore
from rl_core.config.training import TrainerConfig
from rl_core.files import read_json
from rl_core.records.metrics_log import readable_steps
from rl_core.run_directory import RunDirectory
from tasks.cache.lineage import WantedStage
from tasks.cache.manifests import StageManifest, read_manifest
from tasks.cache.software import Software, continued
from tasks.cache.stage_parts import Parts, what_changed
from tasks.resuming.step_records import first_loss

Chain = Sequence[tuple[str, str]]
"""Name and digest of every epoch's stage, in order."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WantedTraining:
    """The training that is asked for.

    Attributes:
        chain: Its epochs.
        trainer: Its checkpoints and validations.
        parts: What its digests cover, part by part.
        software: By which software it would be made now.
        made_from: The lineages of the stages before it (tasks.cache.lineage).
    """

    chain: Chain
    trainer: TrainerConfig
    parts: Parts = field(default_factory=dict)
    software: Software = field(default_factory=dict)
    made_from: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, whole: WantedStage, *, chain: Chain, trainer: TrainerConfig) -> Self:
        """From all epochs together as one stage."""
        return cls(chain=chain, trainer=trainer, parts=whole.parts, software=whole.software, made_from=whole.made_from)

    def epoch(self, number: int, *, made_by: Software) -> WantedStage:
        """An epoch, counted from 1, that `made_by` has made with all before it."""
        name, digest = self.chain[number - 1]
        return WantedStage(name=name, digest=digest, parts=self.parts, software=made_by, made_from=self.made_from)


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingStart:
    """Where training goes on.

    Attributes:
        epochs: The finished epochs that stand, in order.
        step: It goes on after this step; 0 is the model that RL starts from.
        again: Steps that were finished before and are done again.
        ended: Every epoch stands: nothing is trained.
        keep_until: Checkpoints of later steps are not continued from.
        changed: Why what was begun here last is of another training, in words; None when it is of this one.
        dropped: The last step of the other one; 0 when there is none.
        lost: What of the steps before is not there any more, in words; None when all is.
        trained_by: By which software the steps before were made; empty where nobody noted it.
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
        """By which software the whole training is made that this one goes on with."""
        return continued(self.trained_by, software, step=self.step) if self.step else software

    @property
    def costs(self) -> bool:
        """Whether more is lost than an interruption costs."""
        return bool(self.dropped or self.lost)

    def __str__(self) -> str:
        """A sentence for people; empty when there is nothing to tell."""
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

    It is the newest intact checkpoint of this training. If the record of a step before it is lost, it is an older one
    that has all records, as long as that is among those which the store keeps for their age: no more is done again for
    a record's sake than for a damaged checkpoint's.
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
        ended=len(kept) == len(wanted.chain),
        keep_until=own_until if step == newest else step,
        changed=changed,
        dropped=max((at for at in reached if at > own_until), default=0),
        lost=loss.what if loss else None,
        trained_by=_trained_by(run, kept, changed) if step else {},
    )


def finished_epochs(run: RunDirectory, chain: Chain) -> list[StageManifest]:
    """The longest row of epochs of the chain, from the first, that were finished in this run."""
    finished: list[StageManifest] = []
    for stage, digest in chain:
        manifest = read_manifest(run, stage)
        if manifest is None or manifest.digest != digest or not _tells_its_steps(manifest):
            break
        finished.append(manifest)
    return finished


def _trained_by(run: RunDirectory, kept: Sequence[StageManifest], changed: str | None) -> Software:
    """By which software the steps that a training goes on from were made: the note of the epoch that was begun last
    knows that of all before."""
    begun = begun_epoch(run) if changed is None else None
    if begun is not None:
        return begun.software
    return kept[-1].software if kept else {}


def started_file(run: RunDirectory) -> Path:
    """The note of the epoch that was begun last."""
    return run.stage_manifest("training").with_suffix(".started")


def last_step(epochs: Sequence[StageManifest]) -> int:
    """The last step of the last of the epochs; 0 without any."""
    return int(epochs[-1].result["last_step"]) if epochs else 0


def _tells_its_steps(epoch: StageManifest) -> bool:
    return all(isinstance(epoch.result.get(name), int) for name in ("first_step", "last_step"))


def _change(run: RunDirectory, wanted: WantedTraining) -> str | None:
    """Why training here was begun as another one, in words; None when it was not. Without a note of the epoch that was
    begun last the finished ones tell; without any of them too, what lies in a run's folder is its own."""
    begun = begun_epoch(run)
    known = (
        [(begun.name, begun.digest, begun.parts)]
        if begun
        else [(epoch.stage, epoch.digest, epoch.parts) for epoch in _epochs_with_manifest(run)]
    )
    other = next((parts for stage, digest, parts in known if (stage, digest) not in wanted.chain), None)
    return None if other is None else what_changed(other, wanted.parts)


def begun_epoch(run: RunDirectory) -> WantedStage | None:
    """The epoch that was begun last; None when there is no note of it, or a damaged one. Those of earlier versions tell
    less of it."""
    try:
        note = dict(read_json(started_file(run)))
        return WantedStage(
            name=str(note["stage"]),
            digest=str(note["digest"]),
            parts=dict(note.get("parts", {})),
            software={str(name): str(value) for name, value in dict(note.get("software", {})).items()},
        )
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _epochs_with_manifest(run: RunDirectory) -> Iterator[StageManifest]:
    for path in manifests_of_epochs(run):
        manifest = read_manifest(run, path.stem)
        if manifest is not None:
            yield manifest


def manifests_of_epochs(run: RunDirectory) -> list[Path]:
    """The manifest files of all finished epochs, by number: 999 comes before 1000."""
    found = run.stage_manifest("any").parent.glob("train-epoch-*.json")
    return sorted(found, key=lambda path: int(path.stem.rpartition("-")[2]))


def _step_of(checkpoint: Checkpoint | None) -> int:
    return checkpoint.step if checkpoint else 0
