"""One training step without the loop around it, and its parts; and a loop that takes one step."""

import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any, TypeVar
from unittest.mock import patch

from pydantic import BaseModel

from rl_core.config.run import RunConfig
from rl_core.digests import FileRecord
from rl_core.loop import training_loop
from rl_core.loop.collecting import Collected, Collector, NextPrompts
from rl_core.loop.learning import Learned, learn
from rl_core.loop.rollout_batch import EMPTY, RolloutBatch
from rl_core.loop.step_recorder import StepRecord
from rl_core.rewards.pool import RewardPool
from rl_core.stop import StopRequest
from rl_core.timing import PhaseTimer
from rl_core.training.batches import OptimizerBatch
from rl_core.types import Group, Prompt, RolloutKey, Score, TrainGroup
from rl_core.workers.protocol import KeepsState, WorkerGroup, awake_generator

Section = TypeVar("Section", bound=BaseModel)


def changed(section: Section, values: Mapping[str, object]) -> Section:
    """A configuration with other values of keys such as `rollout.n`."""
    for key, value in values.items():
        name, _, rest = key.partition(".")
        inner = changed(getattr(section, name), {rest: value}) if rest else value
        section = section.model_copy(update={name: inner})
    return section


@contextmanager
def stopped_in_a_step(stop: StopRequest) -> Iterator[None]:
    """A stop is requested while a step learns, so that the loop ends after this step."""

    def learn_and_stop(*arguments: Any, **more: Any) -> Learned:
        stop.signum = signal.SIGTERM
        return learn(*arguments, **more)

    with patch.object(training_loop, "learn", learn_and_stop):
        yield


def take_step(
    prompts: Sequence[Prompt] | NextPrompts,
    *,
    step: int,
    config: RunConfig,
    workers: WorkerGroup,
    rewards: RewardPool,
    kl_coef: float | None = None,
    kept: RolloutBatch = EMPTY,
) -> StepRecord:
    """Collect and learn."""
    timer = PhaseTimer()
    with awake_generator(workers, timer):
        collector = Collector(
            step=step,
            config=config,
            workers=workers,
            rewards=rewards,
            timer=timer,
            policy_version=workers.policy_version,
        )
        collected = collector.collect(prompts if callable(prompts) else lambda: prompts, kept=kept)
    learned = learn(collected, step=step, config=config, kl_coef=kl_coef, workers=workers, timer=timer)
    return StepRecord.of(step, collected, learned, seconds=timer.result(), usage=workers.usage())


def collected_of(groups: Sequence[Group], scores: Mapping[RolloutKey, Score]) -> Collected:
    """What a step would have collected; the greedy response of every prompt had the reward 0.5."""
    batch, prompts = RolloutBatch(groups=groups, scores=scores), [group.prompt for group in groups]
    greedy = {prompt.uid: 0.5 for prompt in prompts}
    return Collected(generated=batch, scored=groups, batch=batch, prompts=prompts, greedy_rewards=greedy)


def optimizer_batch(groups: Sequence[TrainGroup], *, longest_response: int = 8) -> OptimizerBatch:
    """All groups of one optimizer step."""
    return OptimizerBatch.of(groups, longest_response=longest_response)


def save_state(
    workers: KeepsState, folder: Path, *, model_only: bool, probe: Sequence[Group]
) -> Mapping[str, FileRecord]:
    """Write the state as it is now, without a copy of it."""
    workers.take_snapshot(model_only=model_only, probe=probe, copy=False)
    return workers.write_snapshot(folder)


Microbatches = list[list[TrainGroup]]


def whole(groups: Sequence[TrainGroup]) -> Microbatches:
    """One micro-batch of packed trees: each prompt once, its responses branch from it."""
    return [list(groups)]


def in_lots(size: int) -> Callable[[Sequence[TrainGroup]], Microbatches]:
    """Micro-batches of `size` rollouts, each a tree of its own, so that no prompt is shared; in another order."""

    def cut(groups: Sequence[TrainGroup]) -> Microbatches:
        trees = [replace(group, samples=[sample]) for group in groups for sample in group.samples]
        mixed = Random(5).sample(trees, len(trees))
        return [mixed[i : i + size] for i in range(0, len(mixed), size)]

    return cut
