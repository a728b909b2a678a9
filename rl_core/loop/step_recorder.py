"""The record of a step, and how it is written: metrics, timings, rollouts and the responses of a validation."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyarrow import ArrowInvalid

from rl_core.evaluation.base_answers import BaseAnswers, note_answers
from rl_core.evaluation.items import write_items
from rl_core.loop.collecting import Collected
from rl_core.loop.learning import Learned
from rl_core.loop.rollout_batch import EMPTY, FindPrompts, RolloutBatch, read_batch
from rl_core.loop.step_metrics import conversation_metrics, reward_metrics, rollout_metrics
from rl_core.loop.validation import Validation
from rl_core.records.metrics_log import RunLogs, read
from rl_core.records.rollout_files import write_rollouts
from rl_core.run_directory import RunDirectory
from rl_core.run_lock import ensure_held
from rl_core.workers.usage import Usage

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class StepRecord:
    """A finished training step.

    Attributes:
        metrics: Functions of config, data and seed only.
        seconds: Wall-clock seconds by phase, with `other` and `total`.
        usage: What the workers have used; a save or a validation counts in the step after it.
    """

    step: int
    collected: Collected
    learned: Learned
    metrics: Mapping[str, float]
    seconds: Mapping[str, float]
    usage: Usage

    @classmethod
    def of(
        cls,
        step: int,
        collected: Collected,
        learned: Learned,
        *,
        seconds: Mapping[str, float],
        usage: Usage,
        has_tools: bool = False,
    ) -> "StepRecord":
        """With the metrics of rollouts, rewards and update, and of conversations where the run has tools."""
        generated = collected.generated
        metrics = {
            **rollout_metrics(generated.groups),
            **(conversation_metrics(generated.groups) if has_tools else {}),
            **reward_metrics(collected.scored, generated.scores),
            **collected.metrics,
            **learned.metrics,
        }
        return cls(step=step, collected=collected, learned=learned, metrics=metrics, seconds=seconds, usage=usage)


class StepRecorder:
    """Writes the records of a run's steps, and reads the rollouts that resume needs."""

    def __init__(self, run: RunDirectory) -> None:
        self._run = run
        self.logs = RunLogs(run)

    def record(self, record: StepRecord, validation: Validation | None) -> None:
        """Write the rollouts (those generated in the step, then those kept from the previous step), timings, events,
        the responses of the validation after the step and, last, the step's metrics line. Raises RunLockLost."""
        self.ensure_lock_held()
        generated = record.collected.generated
        shown = generated + record.collected.stale
        rollouts = self._run.rollouts(record.step)
        write_rollouts(rollouts, shown.groups, shown.scores, record.learned.groups, step=record.step)
        usage = record.usage
        self.logs.log_timing(
            record.step, {**throughput(record), **usage.together}, workers=usage.columns, spans=usage.spans
        )
        for (uid, index), score in generated.scores.items():
            if score.has_failed:
                self.logs.log_event("reward_failed", step=record.step, prompt=uid, sample=index, reason=score.error)
        self.logs.log_step(record.step, {**record.metrics, **self._write_validation(record.step, validation)})
        self.logs.forget_repeated(record.step)

    def record_validation(self, step: int, validation: Validation, *, base: BaseAnswers | None = None) -> None:
        """Write the responses of a validation before the first step, its metrics line, and what its answers depend on
        if that is known."""
        self.logs.log_step(step, self._write_validation(step, validation))
        if base is not None:
            note_answers(self._run.validation(step), base.key)

    def recorded_rollouts(self, step: int, find_prompts: FindPrompts) -> RolloutBatch:
        """The rollouts of `step` from the attempt before this one, with their scores; empty if it did not get there."""
        path = self._run.repeated_rollouts(step)
        if not path.exists():
            return EMPTY
        try:
            recorded = read_batch(path, find_prompts)
        except (OSError, ArrowInvalid) as error:  # a damaged file costs the time to generate its rollouts again
            logger.warning("%s cannot be read, so its rollouts are generated again: %s", path, error)
            return EMPTY
        self.logs.log_event("rollouts-repeated", step=step, rollouts=recorded.num_rollouts)
        return recorded

    def ensure_lock_held(self) -> None:
        """Raises RunLockLost if another process may be writing the run."""
        ensure_held(self._run.lock)

    def recorded_metrics(self) -> list[dict[str, Any]]:
        """The metrics line of every recorded step, with its `step`."""
        return read(self._run.metrics)

    def _write_validation(self, step: int, validation: Validation | None) -> dict[str, float]:
        if validation is None:
            return {}
        write_items(self._run.validation(step), validation.items)
        return validation.metrics


def throughput(record: StepRecord) -> dict[str, float]:
    """Seconds by phase, and samples and tree tokens per second of the whole step."""
    groups = record.collected.generated.groups
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    prompt_tokens = sum(len(group.prompt.token_ids) for group in groups)
    tokens = prompt_tokens + sum(rollout.num_tokens for rollout in rollouts)
    seconds = {f"{name}_s": value for name, value in record.seconds.items()}
    total = record.seconds["total"]
    return seconds | {"samples_per_s": len(rollouts) / total, "tokens_per_s": tokens / total}
