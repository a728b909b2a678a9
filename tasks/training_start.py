"""Where training goes on: after the newest intact checkpoint of this training, whatever else is there of it.

Training differs from the other stages: its epochs continue one another in the same files, and the store removes old
checkpoints on purpose. So an epoch that is finished needs no checkpoint of its own to stand; it stands while an intact
one of the same training lies at its end or behind it. What says that a checkpoint is of the same training is the note
of the epoch that was begun last: its digest holds those of all epochs before it.

Nothing here writes.
"""

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rl_core.checkpoints.manifest import Checkpoint
from rl_core.checkpoints.store import CheckpointStore
from rl_core.config.training import TrainerConfig
from rl_core.run_directory import RunDirectory
from rl_core.tracking.metrics_log import readable_steps
from tasks.manifests import StageManifest, read_manifest
from tasks.step_records import first_loss

Chain = Sequence[tuple[str, str]]
"""Name and digest of every epoch's stage, in order."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingStart:
    """Where training goes on.

    Attributes:
        epochs: The finished epochs that stand, in order.
        step: It goes on after this step; 0 is the model that RL starts from.
        again: Steps that were finished before and are done again.
        ended: Every epoch stands: nothing is trained.
        foreign: What was begun here last belongs to another config, code or data.
        keep_until: Checkpoints of later steps are not continued from.
        lost: What of the steps before is not there any more, in words; None when all is.
    """

    epochs: list[StageManifest]
    step: int
    again: int = 0
    ended: bool = False
    foreign: bool = False
    keep_until: float = math.inf
    lost: str | None = None

    def __str__(self) -> str:
        """A sentence for people; empty when there is nothing to tell."""
        lost = f" ({self.lost})" if self.lost else ""
        if self.ended:
            return f"training is complete{lost}" if lost else ""
        if not (self.step or self.again or lost):
            return ""
        where = f"continues after step {self.step}" if self.step else "starts again at step 1"
        again = f"; {self.again} step(s) of the interrupted run are done again" if self.again else ""
        return f"training {where}{again}{lost}"


def training_start(run: RunDirectory, chain: Chain, store: CheckpointStore, trainer: TrainerConfig) -> TrainingStart:
    """Find out where training of this chain goes on in a run.

    It is the newest intact checkpoint of this training. If the record of a step before it is lost, it is an older one
    that has all records, as long as that is among those which the store keeps for their age: no more is done again for
    a record's sake than for a damaged checkpoint's.
    """
    finished = finished_epochs(run, chain)
    foreign = _is_foreign(run, chain)
    own_until = last_step(finished) if foreign else math.inf
    own = [0, *(found.step for found in store.complete() if found.step <= own_until)]
    newest = _step_of(store.latest(until=own_until))
    loss = first_loss(run, trainer, finished, until=newest)
    step = newest if loss is None else _step_of(store.latest(until=loss.step - 1))
    if step not in own[-trainer.save_limit :]:
        step = newest
    recorded = [known for known in readable_steps(run.metrics) if known <= own_until]
    standing = [epoch for epoch in finished if last_step([epoch]) <= step]
    return TrainingStart(
        epochs=standing,
        step=step,
        ended=len(standing) == len(chain),
        again=max(0, *own, *recorded) - step,
        foreign=foreign,
        keep_until=own_until if step == newest else step,
        lost=loss.what if loss else None,
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


def begun_epoch(run: RunDirectory) -> tuple[str, str] | None:
    """Stage and digest of the epoch that was begun last; None when none was, or when the note of it is damaged."""
    try:
        note = json.loads(started_file(run).read_text(encoding="utf-8"))
        return str(note["stage"]), str(note["digest"])
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError):
        return None


def started_file(run: RunDirectory) -> Path:
    """The note of the epoch that was begun last."""
    return run.stage_manifest("training").with_suffix(".started")


def last_step(epochs: Sequence[StageManifest]) -> int:
    """The last step of the last of the epochs; 0 without any."""
    return int(epochs[-1].result["last_step"]) if epochs else 0


def _tells_its_steps(epoch: StageManifest) -> bool:
    return all(isinstance(epoch.result.get(name), int) for name in ("first_step", "last_step"))


def _is_foreign(run: RunDirectory, chain: Chain) -> bool:
    """Whether training here was begun for another chain. Without a note the epochs that were finished tell; without
    any of them too, what lies in a run's folder is its own."""
    begun = begun_epoch(run)
    known = [begun] if begun else [(epoch.stage, epoch.digest) for epoch in _epochs_with_manifest(run)]
    return any(epoch not in chain for epoch in known)


def _epochs_with_manifest(run: RunDirectory) -> Iterator[StageManifest]:
    for path in manifests_of_epochs(run):
        manifest = read_manifest(run, path.stem)
        if manifest is not None:
            yield manifest


def manifests_of_epochs(run: RunDirectory) -> list[Path]:
    """The manifest files of all epochs that were finished, by number."""
    return sorted(run.stage_manifest("any").parent.glob("train-epoch-*.json"))


def _step_of(checkpoint: Checkpoint | None) -> int:
    return checkpoint.step if checkpoint else 0
