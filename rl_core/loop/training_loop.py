"""The training loop: steps, validation, records and checkpoints; a resumed run continues exactly."""

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rl_core.algorithms.kl import adapted_coef
from rl_core.checkpoints.manifest import CheckpointInfo
from rl_core.checkpoints.store import BackgroundSaver, CheckpointStore
from rl_core.config.run import RunConfig
from rl_core.data.loader import PromptLoader
from rl_core.digests import FileRecord
from rl_core.loop.batch_queue import BatchQueue
from rl_core.loop.learning import learn
from rl_core.loop.learning_signal import SignalWatch
from rl_core.loop.step_recorder import StepRecord, StepRecorder
from rl_core.loop.step_timer import StepTimer
from rl_core.loop.target import Target
from rl_core.loop.validation import Validation, Validator
from rl_core.planning.batches import epoch_spans
from rl_core.planning.epoch_spans import START, DataPlace, EpochSpans
from rl_core.progress import Progress, showing
from rl_core.records.metrics_log import TARGET_EVENT
from rl_core.rewards.pool import RewardPool
from rl_core.stop import SOON, StopRequest
from rl_core.tools.conversations import Conversing, single_turn
from rl_core.training.optimizer import NonFiniteGradients
from rl_core.types import Group
from rl_core.wording import duration
from rl_core.workers.protocol import Loaded, WorkerGroup, awake_generator

logger = logging.getLogger(__name__)

PROBE_GROUPS = 2
"""Groups of the saved step whose log-probs the checkpoint's probe holds."""


@dataclass(frozen=True, kw_only=True, slots=True)
class EpochResult:
    """The result of an epoch of training: its last step's checkpoint, if it is there, and metrics; empty if they were
    lost; and whether `trainer.stop_at` was reached, so that no epoch follows."""

    epoch: int
    first_step: int
    last_step: int
    checkpoint: Path | None
    metrics: Mapping[str, float]
    reached_target: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class LoopParts:
    """What the loop works with."""

    workers: WorkerGroup
    rewards: RewardPool
    loader: PromptLoader
    validator: Validator
    store: CheckpointStore
    recorder: StepRecorder
    progress: Progress
    stop: StopRequest
    conversing: Conversing = single_turn


class TrainingLoop:
    """Runs the training steps of a run, from its last complete checkpoint on. `because` says how the attempt before
    ended; `since` is the place at which its rows or its batch size have become what they are."""

    def __init__(
        self, config: RunConfig, parts: LoopParts, *, base_model: Path, because: str = "", since: DataPlace = START
    ) -> None:
        self._config = config
        self._parts = parts
        self._spans = epoch_spans(config, parts.loader.num_rows, since=since)
        kl = config.algorithm.kl
        self._kl_coef = None if kl is None else kl.coef
        self._batches = BatchQueue(
            config,
            workers=parts.workers,
            rewards=parts.rewards,
            loader=parts.loader,
            recorder=parts.recorder,
            conversing=parts.conversing,
        )
        self._signal = SignalWatch(config, has_parser=parts.rewards.has_parser, log_event=parts.recorder.logs.log_event)
        self._saver = BackgroundSaver(parts.store, check=parts.recorder.ensure_lock_held)
        self._step = self._resume(base_model, because)
        self._target = Target(config.trainer.stop_at, parts.recorder.recorded_metrics())
        self._is_saved = True  # or there is nothing to save
        self._timer = StepTimer(self._step)

    def train_epoch(self, epoch: int, *, after_step: Callable[[], None] = lambda: None) -> EpochResult:
        """Train until the end of `epoch` (from 1) or until `trainer.stop_at` is reached, and until every checkpoint
        that is due by then is saved. `after_step` is called after each step, whose records are written by then.

        Raises:
            OSError: a checkpoint could not be written; with `trainer.async_save`, after the step that followed it.
            Interrupted: a stop was requested; a checkpoint was written first.
            NonFiniteGradients: `trainer.max_nonfinite_steps` optimizer steps in a row were skipped.
            NoSignal: `trainer.stop_without_signal` steps in a row taught nothing.
        """
        first, last = epoch_span(epoch, spans=self._spans, config=self._config)
        progress, stop = self._parts.progress, self._parts.stop
        with progress.bar(f"train epoch {epoch}", last - first + 1) as advance, self._saver:
            advance(max(0, min(self._step, last) - first + 1))
            self._stop_if_nothing_is_lost()
            with showing(advance, lambda: self._timer.now()), stop.taking_effect(self._when_it_stops):
                if self._step == 0 and (validation := self._validate(0, self._timer)) is not None:
                    self._parts.recorder.record_validation(0, validation, base=self._parts.validator.base)
                while self._step < last and self._target.reached_at is None:
                    advance(1, f"reward {self._run_step():.3f}")
                    after_step()
        reached = self._target.reached_at
        last = last if reached is None else reached
        return EpochResult(
            epoch=epoch,
            first_step=first,
            last_step=last,
            checkpoint=next((found.folder for found in self._parts.store.complete() if found.step == last), None),
            metrics=self._parts.recorder.logs.metrics_of(last),
            reached_target=reached is not None,
        )

    def _resume(self, base_model: Path, because: str) -> int:
        if self._config.critic is not None:
            self._parts.workers.load("critic", base_model)
        checkpoint = self._parts.store.latest()
        if checkpoint is None:
            self._parts.workers.load("policy", base_model)
            if self._parts.recorder.logs.has_steps:
                self._parts.recorder.logs.log_event("resumed", step=0, cause=because)
            self._parts.recorder.logs.rewind(-1)  # all but the rollouts, which are not generated again
            return 0
        saved: Loaded = "saved weights" if checkpoint.info.model_only else "saved state"
        self._parts.workers.load(saved, checkpoint.folder)
        if checkpoint.info.model_only:
            logger.warning("%s has no optimizer moments: they start from zero", checkpoint.folder)
        if self._config.algorithm.kl is not None and self._config.algorithm.kl.adaptive is not None:
            self._kl_coef = checkpoint.info.counters.get("kl_coef", self._kl_coef)
        step = checkpoint.info.step
        differs = self._batches.restore(checkpoint.folder, loader=checkpoint.info.loader, step=step)
        # Without moments only the first update comes to other weights than before, so what the weights of the
        # checkpoint sample next is still the same.
        sampled_next = step + 1 + self._config.rollout.staleness
        logs = self._parts.recorder.logs
        logs.rewind(step, keep_until=sampled_next if checkpoint.info.model_only else math.inf)
        logs.log_event("resumed", step=step, cause=because)
        if differs:
            message = (
                f"after step {step} the data is another ({', '.join(differs)}): epoch {self._parts.loader.epoch + 1} "
                "goes on after as many prompts as it has had, in the order of what is there now, in which some of them "
                "may come again and others not"
            )
            logs.log_event("data-changed", step=step, changed=differs, message=message)
            logger.warning("%s", message)
        self._parts.store.prune(step)
        logger.info("resumed after step %d", step)
        return step

    def _run_step(self) -> float:
        """One training step, from the next prompts to its checkpoint, which may be written while the next step runs.
        Returns its mean reward."""
        parts, config, step = self._parts, self._config, self._step + 1
        timer = self._timer = self._timer.next(validates=config.trainer.validates_at(step), saves=self._is_due(step))
        with awake_generator(parts.workers, timer):  # it has the devices' memory until the block ends
            self._stop_if_nothing_is_lost()  # the generator may have taken long to start
            collected = self._batches.next(step, timer)
        learned = learn(
            collected,
            sampled_now=self._batches.sampled_now,
            step=step,
            config=config,
            kl_coef=self._kl_coef,
            workers=parts.workers,
            timer=timer,
        )
        self._batches.finish(timer)
        with timer.phase("checkpoint_wait"):  # of the step before; so a kill costs no more than save_freq steps
            self._saver.wait()
        usage = parts.workers.usage()
        record = StepRecord.of(
            step,
            collected,
            learned,
            seconds=timer.result(),
            usage=usage,
            has_tools=self._config.tools is not None,
        )
        validation = self._validate(step, timer)
        parts.recorder.record(record, validation)
        self._step = step
        kl = config.algorithm.kl
        if kl is not None and kl.adaptive is not None and self._kl_coef is not None and learned.mean_kl is not None:
            self._kl_coef = adapted_coef(
                self._kl_coef,
                kl=learned.mean_kl,
                samples=collected.batch.num_rollouts,
                target=kl.adaptive.target,
                horizon=kl.adaptive.horizon,
            )
        if learned.nonfinite_streak >= config.trainer.max_nonfinite_steps:
            raise NonFiniteGradients(
                f"step {step}: {learned.nonfinite_streak} optimizer steps in a row had a non-finite gradient; lower "
                f"actor.optim.lr (or critic.optim.lr), or look at the rollouts of the last steps (`sightline show`)"
            )
        why = self._target.see(step, {**record.metrics, **(validation.metrics if validation else {})})
        if why is not None:
            parts.recorder.logs.log_event(TARGET_EVENT, step=step, why=why)
        else:
            self._signal.see(record)
        # Read once: a signal that comes after this takes effect in the next step, or after it, with its checkpoint.
        stopping = parts.stop.signum is not None
        self._is_saved = stopping or self._is_due(step)
        if self._is_saved:
            with timer.phase("save"):
                self._begin_save(self._checkpoint_info(validation), probe=collected.generated.groups[:PROBE_GROUPS])
                if stopping:
                    self._saver.wait()
        if stopping:
            parts.stop.raise_if_requested()
        return record.metrics["reward/overall"]

    def _validate(self, step: int, timer: StepTimer) -> Validation | None:
        """Answer the held-out prompts with the weights after `step`, if the config asks for it at this step. Before the
        first step a stop costs nothing else."""
        if not self._config.trainer.validates_at(step):
            return None
        with timer.phase("validate"):
            return self._parts.validator.run(self._parts.workers, step=step, stop=None if step else self._parts.stop)

    def _stop_if_nothing_is_lost(self) -> None:
        if self._is_saved:
            self._parts.stop.raise_if_requested()

    def _when_it_stops(self) -> str:
        """When a request to stop takes effect that comes now."""
        if self._is_saved and not self._timer.has_begun:
            return SOON
        seconds = self._timer.last_seconds
        return f"after this step{'' if seconds is None else f' (the last one took {duration(seconds)})'}"

    def _is_due(self, step: int) -> bool:
        is_last = step == self._target.reached_at
        return is_last or is_saved(step, spans=self._spans, config=self._config)

    def _checkpoint_info(self, validation: Validation | None) -> CheckpointInfo:
        step = self._step
        return CheckpointInfo(
            step=step,
            validation_score=None if validation is None else float(validation.metrics["val/accuracy"]),
            loader=self._batches.state.loader,
            counters={} if self._kl_coef is None else {"kl_coef": self._kl_coef},
            model_only=self._config.trainer.save_model_only,
            interim=not self._is_due(step),
        )

    def _begin_save(self, info: CheckpointInfo, *, probe: Sequence[Group]) -> None:
        """Save the checkpoint of the current step; with `trainer.async_save`, only copy the state here, and write the
        copy in the background."""
        workers, trainer, batches = self._parts.workers, self._config.trainer, self._batches.state
        workers.take_snapshot(model_only=trainer.save_model_only, probe=probe, copy=trainer.async_save)

        def write(folder: Path) -> Mapping[str, FileRecord]:
            batches.save(folder, step=info.step)
            return workers.write_snapshot(folder)

        if trainer.async_save:
            self._saver.begin(write, info=info)
        else:
            self._parts.store.save(write, info=info)


def epoch_span(epoch: int, *, spans: EpochSpans, config: RunConfig) -> tuple[int, int]:
    """First and last step of an epoch, counted from 1, limited by `trainer.max_steps`."""
    last, limit = spans.end(epoch), config.trainer.max_steps
    return spans.first(epoch), last if limit is None else min(last, limit)


def is_saved(step: int, *, spans: EpochSpans, config: RunConfig) -> bool:
    """Whether a checkpoint is written after a step even if nothing interrupts the run."""
    trainer = config.trainer
    epoch = spans.epoch_of(step) if trainer.save_on_epoch_end else trainer.total_epochs
    _, last = epoch_span(epoch, spans=spans, config=config)
    return step % trainer.save_freq == 0 or step in (last, trainer.max_steps)
