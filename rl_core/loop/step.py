"""The record of a training step."""

from collections.abc import Mapping
from dataclasses import dataclass

from rl_core.loop.collecting import Collected
from rl_core.loop.learning import Learned
from rl_core.loop.step_metrics import reward_metrics, rollout_metrics
from rl_core.workers.usage import Usage


@dataclass(frozen=True, kw_only=True, slots=True)
class StepRecord:
    """A finished training step.

    Attributes:
        step: Its number, from 1.
        collected: Its rollouts.
        learned: The result of its update.
        metrics: Functions of config, data and seed only.
        seconds: Wall-clock seconds by phase, with `other` and `total`.
        usage: What the workers have used (`WorkerGroup.usage`). A save or a validation counts in the step after it.
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
    ) -> "StepRecord":
        """The record with the metrics of rollouts, rewards and update."""
        generated = collected.generated
        metrics = {
            **rollout_metrics(generated.groups),
            **reward_metrics(collected.scored, generated.scores),
            **collected.metrics,
            **learned.metrics,
        }
        return cls(step=step, collected=collected, learned=learned, metrics=metrics, seconds=seconds, usage=usage)
