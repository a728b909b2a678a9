"""The same training steps again and again, from the same weights, at the size of the quickstart."""

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from rl_core.config.loading import load_config
from rl_core.config.run import RunConfig
from rl_core.data.prepared import PreparedDataset
from rl_core.loop.step_metrics import update_metrics
from rl_core.run_directory import RunDirectory
from rl_core.training.batches import OptimizerBatch, UpdateBatch
from rl_core.types import Float32Array, Prompt, TrainGroup, TrainSample
from rl_core.workers.folders import Opening
from rl_core.workers.local_worker import LocalWorker
from tests.rl_core.builders import groups_of, make_train_group
from tests.rl_core.busy import busy_cores, threads_of_torch
from tests.rl_core.small_run import folders_of, load_all

QUICKSTART = Path(__file__).parents[3] / "configs" / "quickstart.yaml"
PROMPTS, RESPONSES = 16, 8
PLAIN_TOKENS = 256
"""The byte tokens: ids below it are text in every tiny model."""


def quickstart(*overrides: str, longest: int = 12) -> RunConfig:
    """The quickstart with one optimizer batch of rows and responses of up to `longest` tokens."""
    rows = (f"data.train.size={PROMPTS}", "data.validation.size=1")
    return load_config(QUICKSTART, [*rows, f"rollout.max_response_length={longest}", *overrides])


def made_up_groups(config: RunConfig, run: RunDirectory) -> list[TrainGroup]:
    """A batch of real prompts with made-up responses of uneven lengths, some of a single token: the border between two
    threads then lies within a group."""
    dataset, generator = PreparedDataset.open(run.data, "train"), np.random.default_rng(0)
    longest = config.rollout.max_response_length

    def group(prompt: Prompt) -> TrainGroup:
        lengths = generator.integers(longest // 2, longest + 1, RESPONSES)
        lengths[generator.random(RESPONSES) < 0.15] = 1
        return drawn_group(prompt, lengths, generator)

    return [group(dataset[number]) for number in range(PROMPTS)]


def drawn_group(prompt: Prompt, lengths: np.ndarray, generator: np.random.Generator) -> TrainGroup:
    """Responses of these lengths; their tokens and all that is known of them is drawn."""

    def drawn(sample: TrainSample) -> TrainSample:
        length = len(sample.rollout.response_ids)
        ids = generator.integers(0, PLAIN_TOKENS, length).astype(np.int32)
        noise = generator.normal(size=(3, length)).astype(np.float32)
        rollout = replace(sample.rollout, response_ids=ids)
        return replace(sample, rollout=rollout, advantages=noise[0], values=noise[1], returns=noise[2])

    made = make_train_group(prompt.uid, lengths=tuple(lengths.tolist()))
    return TrainGroup(prompt=prompt, samples=[drawn(sample) for sample in made.samples])


class Trials:
    """One worker that does the same work again and again, from the same weights."""

    def __init__(self, config: RunConfig, run: RunDirectory) -> None:
        self._config, self._run = config, run
        self._worker = LocalWorker(
            Opening(config=config, folders=folders_of(run), total_optimizer_steps=100, total_critic_steps=100)
        )

    def outcome(self, groups: Sequence[TrainGroup], *, steps: int) -> dict[str, str]:
        """Name -> digest of everything that `steps` training steps leave."""
        worker, kl = self._worker, self._config.algorithm.kl
        load_all(worker, self._run.initial_model)
        found: dict[str, str] = {}
        for step in range(steps):
            log_probs = worker.compute("old_log_probs", [groups_of(groups)])[0]
            current = [with_old_log_probs(*pair) for pair in zip(groups, log_probs, strict=True)]
            learned = [OptimizerBatch.of(current, longest_response=self._config.rollout.max_response_length)]
            batch = UpdateBatch(
                policy=learned,
                critic=learned if self._config.critic is not None else [],
                kl_coef=None if kl is None else kl.coef,
                check_agreement=False,
            )
            result = worker.update(batch)
            found |= {f"step {step}: {name}": repr(value) for name, value in update_metrics(result).items()}
            found[f"step {step}: old log-probs"] = digest(np.concatenate([p for group in log_probs for p in group]))
        trainer = worker.trainer
        for owner, module in (("policy", trainer.policy), ("critic", trainer.critic and trainer.critic._model)):
            for name, weight in module.named_parameters() if module is not None else ():
                found[f"{owner} {name}"] = digest(weight.detach().float().numpy())
        return found

    def gap_of_the_first_ratio(self, groups: Sequence[TrainGroup]) -> float:
        """The largest difference between the old log-probs, recomputed for two optimizer batches, and those of the
        update's first forwards: 0 means a ratio of exactly 1."""
        worker, kl = self._worker, self._config.algorithm.kl
        load_all(worker, self._run.initial_model)
        batches = [groups[: len(groups) // 2], groups[len(groups) // 2 :]]
        old = worker.compute("old_log_probs", [groups_of(batch) for batch in batches])
        sampled = [
            [
                as_if_sampled(group, log_probs, policy_version=worker.policy_version)
                for group, log_probs in zip(*pair, strict=True)
            ]
            for pair in zip(batches, old, strict=True)
        ]
        longest = self._config.rollout.max_response_length
        learned = [OptimizerBatch.of(batch, longest_response=longest) for batch in sampled]
        result = worker.update(UpdateBatch(policy=learned, kl_coef=None if kl is None else kl.coef))
        assert result.log_prob_gap is not None
        assert result.log_prob_gap.count == sum(
            len(s.rollout.response_ids) for group in batches[0] for s in group.samples
        )
        return result.log_prob_gap.largest


def as_if_sampled(group: TrainGroup, log_probs: list[Float32Array], *, policy_version: int) -> TrainGroup:
    """The group as if the generator had reported these log-probs."""
    samples = [
        replace(sample, rollout=replace(sample.rollout, log_probs=old, policy_version=policy_version))
        for sample, old in zip(group.samples, log_probs, strict=True)
    ]
    return with_old_log_probs(replace(group, samples=samples), log_probs)


def with_old_log_probs(group: TrainGroup, log_probs: list[Float32Array]) -> TrainGroup:
    pairs = zip(group.samples, log_probs, strict=True)
    return replace(group, samples=[replace(sample, old_log_probs=old) for sample, old in pairs])


def digest(array: np.ndarray) -> str:
    return hashlib.sha256(array.tobytes()).hexdigest()


def what_differs(trials: Trials, groups: Sequence[TrainGroup], *, threads: int, repeats: int, steps: int) -> set[str]:
    """The names whose digests are not the same in all repeats."""
    with threads_of_torch(threads), busy_cores():
        outcomes = [trials.outcome(groups, steps=steps) for _ in range(repeats)]
    return {name for name in outcomes[0] if len({outcome[name] for outcome in outcomes}) > 1}
