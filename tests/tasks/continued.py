"""A training that is killed and started again: the real loop, store, recorder and manifests around a step that computes
next to nothing, so that hundreds of geometries fit into a second."""

import hashlib
import os
import signal
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

from rl_core.checkpoints.manifest import Checkpoint, CheckpointInfo
from rl_core.checkpoints.store import CheckpointStore, WriteState
from rl_core.config.cluster import ClusterConfig
from rl_core.config.run import RunConfig
from rl_core.config.training import StopAt
from rl_core.data.loader import PromptLoader
from rl_core.digests import FileRecord, folder_records
from rl_core.loop import batch_queue, training_loop
from rl_core.loop.collecting import Collected, NextPrompts
from rl_core.loop.learning import Learned
from rl_core.loop.rollout_batch import RolloutBatch
from rl_core.loop.step_recorder import StepRecord, StepRecorder
from rl_core.loop.training_loop import EpochResult, LoopParts, TrainingLoop
from rl_core.loop.validation import Validation
from rl_core.planning.epoch_spans import START, DataPlace, EpochSpans
from rl_core.progress import SilentProgress
from rl_core.records.metrics_log import read
from rl_core.run_directory import RunDirectory
from rl_core.stop import Interrupted, StopRequest
from rl_core.types import Prompt, Score
from rl_core.workers.protocol import Loaded
from rl_core.workers.usage import Usage
from tasks.cache.manifests import StageManifest, WantedStage, describe_outputs, write_manifest
from tasks.resuming.training_start import TrainingStart, WantedTraining
from tasks.resuming.training_state import mark_started, take_up_training
from tasks.train import epoch_outputs
from tests.results import hashes
from tests.rl_core.builders import make_group, make_prompt
from tests.rl_core.evaluation.builders import make_items
from tests.rl_core.tracking.runs import a_config


class Killed(BaseException):
    """Stands for SIGKILL: nothing after it is written."""


@dataclass(frozen=True, kw_only=True)
class Geometry:
    """What decides which checkpoints there are, and when."""

    steps_per_epoch: int
    epochs: int
    save_freq: int
    save_limit: int
    val_freq: int = -1
    scores: Sequence[float] = (0.5,)
    """Of the validations, quarters; which one depends on the weights."""
    model_only: bool = False
    epoch_ends: bool = True
    """Whether the end of each epoch is saved."""
    max_steps: int | None = None
    staleness: int = 0
    stop_at: StopAt | None = None
    parts: Mapping[str, str] = field(default_factory=dict)
    software: Mapping[str, str] = field(default_factory=lambda: {"torch": "2.0"})
    digests: Mapping[int, str] = field(default_factory=dict)
    """Of epochs; that of another one is its number."""
    batch: int | None = None
    """Prompts of a step, where they are not those of the config."""
    since: DataPlace = START

    @property
    def spans(self) -> EpochSpans:
        return EpochSpans(steps=self.steps_per_epoch, batch=self.config.data.rollout_batch_size, since=self.since)

    @property
    def steps(self) -> int:
        whole = self.spans.end(self.epochs)
        return whole if self.max_steps is None else min(whole, self.max_steps)

    @property
    def chain(self) -> list[tuple[str, str]]:
        epochs = range(1, self.spans.epoch_of(self.steps) + 1)
        return [(f"train-epoch-{epoch:03d}", f"{self.digests.get(epoch, epoch)}") for epoch in epochs]

    @property
    def wanted(self) -> WantedTraining:
        whole = WantedStage(name="training", digest="", parts=self.parts, software=self.software)
        return WantedTraining(
            chain=self.chain,
            spans=self.spans,
            total_steps=self.steps,
            trainer=self.config.trainer,
            whole=whole,
        )

    @property
    def config(self) -> RunConfig:
        config = a_config()
        trainer = config.trainer.model_copy(
            update={
                "total_epochs": self.epochs,
                "save_freq": self.save_freq,
                "save_limit": self.save_limit,
                "val_freq": self.val_freq,
                "save_model_only": self.model_only,
                "save_on_epoch_end": self.epoch_ends,
                "max_steps": self.max_steps,
                "stop_at": self.stop_at,
            }
        )
        rollout = config.rollout.model_copy(update={"staleness": self.staleness})
        data = config.data.model_copy(update={"rollout_batch_size": self.batch} if self.batch else {})
        return config.model_copy(update={"trainer": trainer, "rollout": rollout, "data": data})


class Workers:
    """Hold one number that depends on every step so far."""

    policy_version = 0
    cluster = ClusterConfig()

    def __init__(self) -> None:
        self.state = self.snapshot = "new"

    def wake(self) -> None:
        pass

    def sleep(self) -> None:
        pass

    def load(self, what: Loaded, folder: Path) -> None:
        self.state = "new" if what == "policy" else (folder / "state").read_text()

    def usage(self) -> Usage:
        return Usage(workers=[])

    def take_snapshot(self, *, model_only: bool, probe: Sequence[object], copy: bool) -> None:
        self.snapshot = self.state

    def write_snapshot(self, folder: Path) -> Mapping[str, FileRecord]:
        (folder / "state").write_text(self.snapshot)
        return {}

    def learn(self, step: int) -> None:
        self.state = hashlib.sha256(f"{self.state} {step}".encode()).hexdigest()


class Loader(PromptLoader):
    """Has a prompt of any name."""

    def find(self, uids: Collection[str]) -> dict[str, Prompt]:
        return {uid: make_prompt(uid) for uid in uids}


class Validator:
    """Gives the weights one of the scores, always the same."""

    base = None

    def __init__(self, scores: Sequence[float]) -> None:
        self._scores = scores

    def run(self, workers: Workers, *, step: int, stop: StopRequest | None) -> Validation:
        score = self._scores[int(hashlib.sha256(workers.state.encode()).hexdigest(), 16) % len(self._scores)]
        right = round(score * 4)
        return Validation(make_items("+" * right + "-" * (4 - right)))


@dataclass(frozen=True, kw_only=True)
class End:
    """How a process ends before its time.

    Attributes:
        step: The step in which it does.
        kind: "killed" before the step is recorded; "recorded", killed right after that; "unsaved", killed while the
            step's checkpoint is written in the background; "saved", killed when it is in place and older ones are not
            removed yet; "unnoted", killed when the step ended an
            epoch and nothing says so yet; "stopped" by a signal, so that the step is saved first.
    """

    step: int
    kind: str


ENDS = ("killed", "recorded", "unsaved", "saved", "unnoted", "stopped")


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """What a process found and did before it ended.

    Attributes:
        start: Where it was decided to go on.
        kept: Steps of the intact checkpoints after the loop had loaded one of them.
        resumed: The step that the loop stood at then.
        ended: Whether the training came to its end.
    """

    start: TrainingStart
    kept: list[int]
    resumed: int
    ended: bool


def attempt(run: RunDirectory, geometry: Geometry, end: End | None = None, *, elsewhere: bool = False) -> Attempt:
    """Train as a flow's process does, until the training's end or its own.

    Args:
        run: The run's folder.
        geometry: Its geometry.
        end: How the process ends before that.
        elsewhere: Whether epochs of other runs may be taken over.
    """
    with unsynced():
        run.root.mkdir(parents=True, exist_ok=True)
        store = CheckpointStore(run.checkpoints, save_limit=geometry.save_limit)
        start = take_up_training(run, geometry.wanted, store, elsewhere=elsewhere)
        return _train(run, geometry, start, end)


@contextmanager
def unsynced() -> Iterator[None]:
    """Nothing is flushed to the disk: no machine loses its power here, and it takes most of the time."""
    with patch.object(os, "fsync", lambda descriptor: None):
        yield


def _train(run: RunDirectory, geometry: Geometry, start: TrainingStart, end: End | None) -> Attempt:
    if start.ended:
        return Attempt(start=start, kept=intact(run), resumed=start.step, ended=True)
    workers, stop = Workers(), StopRequest()
    at = {end.kind: end.step} if end else {}

    def learn(collected: Collected, *, step: int, **_: Any) -> Learned:
        if at.get("killed") == step:
            raise Killed
        if at.get("stopped") == step:
            stop.signum = signal.SIGTERM
        workers.learn(step)
        metrics = {"reward/overall": int(workers.state[:6], 16) / 7}
        return Learned(groups=[], metrics=metrics, mean_kl=None, nonfinite_streak=0)

    class Recorder(StepRecorder):
        def record(self, record: StepRecord, validation: Validation | None) -> None:
            super().record(record, validation)
            if at.get("recorded") == record.step:
                raise Killed

    class Store(CheckpointStore):
        def add(self, write: WriteState, *, info: CheckpointInfo) -> Checkpoint:
            def killed(folder: Path) -> Mapping[str, FileRecord]:
                write(folder)
                raise Killed

            return super().add(killed if at.get("unsaved") == info.step else write, info=info)

        def retain(self, step: int) -> None:
            if at.get("saved") == step:
                raise Killed
            super().retain(step)

    made_by = start.made_by(geometry.software)
    mark_started(run, geometry.wanted.epoch(len(start.epochs) + 1, made_by=made_by))
    store = Store(run.checkpoints, save_limit=geometry.save_limit)
    with patch.object(batch_queue, "Collector", Collects), patch.object(training_loop, "learn", learn):
        parts = _parts(run, geometry, workers=workers, store=store, recorder=Recorder(run), stop=stop)
        loop = TrainingLoop(geometry.config, parts, base_model=run.base_model, since=geometry.since)
        kept, resumed = intact(run), loop._step
        try:
            for epoch, (stage, _) in enumerate(geometry.chain, start=1):
                if stage not in {done.stage for done in start.epochs}:
                    wanted = geometry.wanted.epoch(epoch, made_by=made_by)
                    mark_started(run, wanted)
                    result = loop.train_epoch(epoch)
                    if at.get("unnoted") == result.last_step:
                        raise Killed
                    _finish(run, geometry, wanted, result, store)
                    if result.reached_target:
                        break
        except (Killed, Interrupted):
            return Attempt(start=start, kept=kept, resumed=resumed, ended=False)
    return Attempt(start=start, kept=kept, resumed=resumed, ended=True)


def _finish(
    run: RunDirectory, geometry: Geometry, made: WantedStage, result: EpochResult, store: CheckpointStore
) -> None:
    outputs = describe_outputs(run.root, epoch_outputs(run, result, store))
    manifest = StageManifest(
        stage=made.name,
        digest=made.digest,
        outputs=outputs,
        result={name: getattr(result, name) for name in ("first_step", "last_step", "reached_target")},
        seconds=1.0,
        finished_at="",
        software=made.software,
    )
    write_manifest(run, manifest)


def _parts(run: RunDirectory, geometry: Geometry, **driven: Any) -> LoopParts:
    return LoopParts(
        rewards=Rewards(),
        loader=loader_of(geometry),
        validator=Validator(geometry.scores),
        progress=SilentProgress(),
        **driven,
    )


def loader_of(geometry: Geometry) -> Loader:
    """As many rows as the epochs need."""
    batch = geometry.config.data.rollout_batch_size
    rows = [make_prompt(f"row {number}") for number in range(geometry.steps_per_epoch * batch)]
    return Loader(rows, batch_size=batch, seed=1, shuffle=True)


class Rewards:
    """Rewards that read no answers."""

    def has_parser(self, data_source: str) -> bool:
        return False


class Collects:
    """One group for each step, whose reward tells which weights there were, or what is recorded of it; the loader moves
    on."""

    def __init__(self, *, step: int, recorded: RolloutBatch, workers: Workers, **_: Any) -> None:
        group = make_group(f"p{step}", lengths=(2,))
        weights = int(hashlib.sha256(workers.state.encode()).hexdigest()[:6], 16) / 7
        scores = {rollout.key: Score(components={"overall": weights}) for rollout in group.rollouts}
        self._batch = recorded if recorded.groups else RolloutBatch(groups=[group], scores=scores)

    def collect(self, next_prompts: NextPrompts, *, kept: RolloutBatch) -> Collected:
        next_prompts()
        return Collected(generated=self._batch, scored=self._batch.groups, batch=self._batch, prompts=[])


def intact(run: RunDirectory) -> list[int]:
    """Steps of the checkpoints that have everything they were written with."""
    store = CheckpointStore(run.checkpoints, save_limit=1)
    return [found.step for found in store.complete() if store.latest(until=found.step) == found]


def recorded(run: RunDirectory) -> int:
    """The last step in metrics.jsonl."""
    return max((line["step"] for line in read(run.metrics)), default=0)


def results(run: RunDirectory) -> dict[str, str]:
    """What must not depend on how often the run was ended."""
    answers = {f"validations/{name}": digest for name, digest in folder_records(run.validation(0).parent).items()}
    return hashes(run.root, ("metrics.jsonl", "rollouts/*", "checkpoints/**/*")) | answers
