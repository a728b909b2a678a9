"""Whether a step has anything to learn from, and whether entropy and KL are in range; where that is not so for several
steps in a row, the probable cause is said."""

import logging
from collections.abc import Callable, Mapping

import numpy as np

from rl_core.config.run import RunConfig
from rl_core.loop.step_recorder import StepRecord
from rl_core.records.metrics_log import NO_SIGNAL_EVENT, RANGE_EVENT

logger = logging.getLogger(__name__)

_WARNS_AFTER = 2
_NEARLY_ALL = 0.9

_DETERMINED = 0.1
"""Nats of a whole response, tokens times entropy. Below, nine of ten responses to a prompt are one and the same
(exp(-0.1) = 0.9), and a group of them has no spread."""

_SPREAD_OUT = 3.0
"""Nats of a token, as of a choice among exp(3) = 20 equally likely ones. Text that a model can write has 0.3 to 2."""

_FAR_KL = 5.0
"""Nats of a token: the reference gives what the policy writes a probability that is exp(5) = 150 times lower at each
token. Runs that keep to their reference stay below 1."""

_LARGE_UPDATE = 1.0
"""Nats of a token by which one update moves the policy; a sound one moves it by 0.02 at most (docs/metrics.md)."""


class NoSignal(RuntimeError):
    """`trainer.stop_without_signal` steps in a row taught nothing."""


class SignalWatch:
    """Counts the steps in a row that taught nothing, and those with entropy or KL out of range. After two it warns, and
    again when the cause is another one."""

    def __init__(self, config: RunConfig, *, has_parser: Callable[[str], bool], log_event: Callable[..., None]) -> None:
        self._config = config
        self._has_parser = has_parser
        self._log_event = log_event
        self._steps = 0
        self._warned_of = ""
        self._first_entropy: float | None = None
        self._range_steps: dict[str, int] = {}

    def see(self, record: StepRecord) -> None:
        """Take note of a step. Raises NoSignal."""
        self._see_range(record)
        why = missing_signal(record, self._config, has_parser=self._has_parser)
        if why is None:
            self._steps, self._warned_of = 0, ""
            return
        self._steps += 1
        what = (
            f"{self._steps} steps in a row taught nothing: {why}; look with `sightline show RUN --step {record.step}`"
        )
        most = self._config.trainer.stop_without_signal
        if self._steps >= _WARNS_AFTER and why != self._warned_of:
            logger.warning("step %d: %s", record.step, what)
            self._log_event(NO_SIGNAL_EVENT, step=record.step, steps=self._steps, why=why)
            self._warned_of = why
        if most is not None and self._steps >= most:
            raise NoSignal(f"step {record.step}: {what} (trainer.stop_without_signal: {most})")

    def _see_range(self, record: StepRecord) -> None:
        if self._first_entropy is None:
            self._first_entropy = record.metrics.get("actor/entropy")
        whys = out_of_range(record.metrics, first_entropy=self._first_entropy)
        self._range_steps = {why: self._range_steps.get(why, 0) + 1 for why in whys}
        for why, steps in self._range_steps.items():
            if steps == _WARNS_AFTER:
                logger.warning("step %d: %s", record.step, why)
                self._log_event(RANGE_EVENT, step=record.step, steps=steps, why=why)


def out_of_range(metrics: Mapping[str, float], *, first_entropy: float | None) -> list[str]:
    """What entropy and KL of a step show that ends badly if it goes on, with what to do, in words that stay the same
    from step to step. `first_entropy` is that of the first step."""
    found = []
    entropy = metrics.get("actor/entropy")
    if entropy is not None and entropy * metrics["response_length/mean"] < _DETERMINED:
        found.append(
            f"the entropy of a response (actor/entropy x response_length/mean) is below {_DETERMINED:g} nats: nearly "
            "all responses to a prompt are equal, and nothing is left to explore; if the task is not solved, lower the "
            "learning rate, or raise algorithm.entropy_coef, rollout.temperature or algorithm.loss.clip_ratio_high"
        )
    if entropy is not None and first_entropy is not None and entropy > max(_SPREAD_OUT, 2.0 * first_entropy):
        found.append(
            f"actor/entropy has more than doubled and is above {_SPREAD_OUT:g} nats: the model drifts towards random "
            "tokens; lower the learning rate or algorithm.entropy_coef, or add algorithm.kl"
        )
    far = max(metrics.get("kl/reference", 0.0), metrics.get("actor/kl_loss", 0.0))
    if far > _FAR_KL:
        found.append(
            f"the KL to the reference is above {_FAR_KL:g} nats a token: the model has left what it knew; lower the "
            "learning rate, raise algorithm.kl.coef, or go on from an earlier checkpoint"
        )
    if metrics.get("actor/approx_kl", 0.0) > _LARGE_UPDATE:
        found.append(
            f"an update moves the policy by more than {_LARGE_UPDATE:g} nats a token (actor/approx_kl): lower "
            "actor.optim.lr, or actor.max_grad_norm"
        )
    return found


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
