"""Whether a step has anything to learn from; where several in a row have not, the probable cause is said."""

import logging
from collections.abc import Callable

import numpy as np

from rl_core.config.run import RunConfig
from rl_core.loop.step_recorder import StepRecord
from rl_core.records.metrics_log import NO_SIGNAL_EVENT

logger = logging.getLogger(__name__)

_SAID_AFTER = 2
_NEARLY_ALL = 0.9


class NoSignal(RuntimeError):
    """`trainer.stop_without_signal` steps in a row taught nothing."""


class SignalWatch:
    """Counts the steps in a row that taught nothing. After two it warns, and again when the cause is another one."""

    def __init__(self, config: RunConfig, *, has_parser: Callable[[str], bool], log_event: Callable[..., None]) -> None:
        self._config = config
        self._has_parser = has_parser
        self._log_event = log_event
        self._steps = 0
        self._said = ""

    def see(self, record: StepRecord) -> None:
        """Take note of a step. Raises NoSignal."""
        why = missing_signal(record, self._config, has_parser=self._has_parser)
        if why is None:
            self._steps, self._said = 0, ""
            return
        self._steps += 1
        what = (
            f"{self._steps} steps in a row taught nothing: {why}; look with `sightline show RUN --step {record.step}`"
        )
        most = self._config.trainer.stop_without_signal
        if self._steps >= _SAID_AFTER and why != self._said:
            logger.warning("step %d: %s", record.step, what)
            self._log_event(NO_SIGNAL_EVENT, step=record.step, steps=self._steps, why=why)
            self._said = why
        if most is not None and self._steps >= most:
            raise NoSignal(f"step {record.step}: {what} (trainer.stop_without_signal: {most})")


def missing_signal(record: StepRecord, config: RunConfig, *, has_parser: Callable[[str], bool]) -> str | None:
    """Why a step teaches nothing, with what to do, in words that stay the same from step to step; None if it teaches
    something. It teaches nothing if the learning rate is 0, all responses have one reward, or no advantage differs
    from 0."""
    if record.metrics.get("actor/lr") == 0.0:
        return "the learning rate is 0 (actor.optim.lr)"
    scores = [score for score in record.collected.generated.scores.values() if score.error is None]
    rewards = {score.overall for score in scores}
    if len(rewards) > 1 and _has_advantages(record):
        return None
    return _cause(record, config, rewards=rewards, unread=_unread_share(record, has_parser))


def _has_advantages(record: StepRecord) -> bool:
    samples = (sample for group in record.learned.groups for sample in group.samples)
    return any(sample.in_loss and np.any(sample.advantages) for sample in samples)


def _unread_share(record: StepRecord, has_parser: Callable[[str], bool]) -> float:
    """Of the responses in which the reward looks for an answer, the share of those in which it finds none."""
    generated = record.collected.generated
    read = [
        generated.scores[rollout.key].parsed is not None
        for group in generated.groups
        if has_parser(group.prompt.data_source)
        for rollout in group.rollouts
    ]
    return 1.0 - sum(read) / len(read) if read else 0.0


def _cause(record: StepRecord, config: RunConfig, *, rewards: set[float], unread: float) -> str:
    limit = config.rollout.max_response_length
    if record.metrics["response_length/clip_ratio"] >= _NEARLY_ALL:
        return (
            f"nearly all responses were cut at rollout.max_response_length {limit}"
            f"{', and algorithm.overlong_filtering leaves such responses out' * config.algorithm.overlong_filtering}: "
            "raise it, or see whether the model ends its responses at all (its end token, or a cold start on short "
            "answers)"
        )
    if unread >= _NEARLY_ALL:
        return (
            "the reward finds no answer in nearly all responses: let data.prompt_template ask for the form that it "
            "reads, or a cold start teach that form"
        )
    if len(rewards) == 1:
        return (
            f"the reward is {next(iter(rewards)):g} for every response: look at what it reads in them, and whether the "
            "answers of the data are those of their questions"
        )
    return (
        "all responses to a prompt have one reward, so no advantage is left: raise rollout.n or rollout.temperature "
        "(responses may be equal), or take prompts that are neither always nor never solved"
    )
