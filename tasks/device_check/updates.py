"""Steps on given rollouts: what must come out alike, however the trainer keeps or spreads its weights."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from rl_core.loop.collecting import Collected
from rl_core.loop.learning import learn
from rl_core.loop.rollout_batch import RolloutBatch
from rl_core.models.loading import banned_token_ids, load_architecture
from rl_core.timing import PhaseTimer
from rl_core.types import Float32Array, Group, Prompt, Rollout, Score
from rl_core.workers.protocol import WorkerGroup
from tasks.device_check.trial import Trial

UPDATES = 2
"""Steps that are compared: the numbers of the second one depend on the weights that the first one has made."""


def made_groups(trial: Trial, response: int) -> list[Group]:
    """A group for each prompt of a step, with random responses of this many tokens, none of them banned."""
    folder = trial.run.initial_model
    vocabulary = np.arange(load_architecture(folder).get_text_config().vocab_size)
    allowed = np.setdiff1d(vocabulary, banned_token_ids(folder))
    draw = np.random.default_rng(response)

    def rollout(prompt: Prompt, index: int) -> Rollout:
        return Rollout(
            prompt_uid=prompt.uid,
            sample_index=index,
            response_ids=draw.choice(allowed, response).astype(np.int32),
            log_probs=np.zeros(response, np.float32),  # `learn_from` puts the trainer's in their place
            text="",
            finish_reason="stop",  # algorithm.overlong_filtering leaves none of them out
            policy_version=0,
        )

    indices = range(trial.config.rollout.n)
    return [Group(prompt=prompt, rollouts=[rollout(prompt, index) for index in indices]) for prompt in trial.prompts]


def learn_from(
    workers: WorkerGroup, trial: Trial, groups: Sequence[Group], *, timer: PhaseTimer | None = None
) -> Mapping[str, float]:
    """The metrics of one step of learning from these groups, in which every second response is rewarded. They are taken
    to be sampled by the trainer's present weights, so that one batch serves for several steps."""
    config = trial.config
    groups = _sampled_now(workers, groups)
    scores = {rollout.key: _score(rollout.sample_index) for group in groups for rollout in group.rollouts}
    collected = Collected(
        generated=RolloutBatch(groups=groups, scores=scores),
        scored=groups,
        batch=RolloutBatch(groups=groups, scores=scores),
        prompts=[group.prompt for group in groups],
        greedy_rewards={group.prompt.uid: 0.0 for group in groups},
    )
    learned = learn(
        collected,
        step=max(1, config.trainer.critic_warmup),
        config=config,
        kl_coef=None if config.algorithm.kl is None else config.algorithm.kl.coef,
        workers=workers,
        timer=timer or PhaseTimer(),
    )
    return learned.metrics


def gradient_norms(trial: Trial, groups: Sequence[Group]) -> list[float]:
    """The gradient norms of two steps on the same groups, by new workers with the initial weights."""
    with trial.workers() as workers:
        if trial.config.algorithm.kl is not None:
            workers.load("reference", trial.run.initial_model)
        return [learn_from(workers, trial, groups)["actor/grad_norm"] for _ in range(UPDATES)]


def _sampled_now(workers: WorkerGroup, groups: Sequence[Group]) -> list[Group]:
    """The groups with the trainer's log-probs in place of the generator's."""
    (found,) = workers.compute("old_log_probs", [groups])
    return [
        replace(group, rollouts=[_as_of(workers, *pair) for pair in zip(group.rollouts, log_probs, strict=True)])
        for group, log_probs in zip(groups, found, strict=True)
    ]


def _as_of(workers: WorkerGroup, rollout: Rollout, log_probs: Float32Array) -> Rollout:
    return replace(rollout, log_probs=log_probs, policy_version=workers.policy_version)


def _score(sample_index: int) -> Score:
    return Score(components={"overall": float(sample_index % 2)})
