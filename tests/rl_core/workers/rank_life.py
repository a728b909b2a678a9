"""The life of a worker that is one of several ranks: what it generates, learns, saves and exports."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from unittest.mock import patch

import numpy as np
import torch
from transformers import modeling_utils

from rl_core.config.loading import load_config
from rl_core.data.prepared import PreparedDataset
from rl_core.distributed.place import RankPlace
from rl_core.distributed.shards import whole
from rl_core.randomness import keyed_seed
from rl_core.run_directory import RunDirectory
from rl_core.training.batches import OptimizerBatch, UpdateBatch, UpdateResult
from rl_core.training.saved_model import ModuleState
from rl_core.types import Float32Array, GenerationRequest, Group, Rollout, RolloutKey, Sampling, TrainGroup, TrainSample
from rl_core.workers.folders import Opening
from rl_core.workers.local_worker import LocalWorker
from tests.rl_core.builders import made_up_rollout
from tests.rl_core.small_run import SMALL, folders_of
from tests.rl_core.steps import save_state

PROMPTS = 5
RESPONSES = 3
LONGEST = 8


@dataclass
class Rank:
    """One rank's worker, with its share of the prompts: every n-th one."""

    worker: LocalWorker
    place: RankPlace
    prompts: Sequence[int]
    run: RunDirectory

    @classmethod
    def open(cls, place: RankPlace, root: Path, overrides: Sequence[str]) -> "Rank":
        config = load_config(SMALL, ["cold_start=null", "trainer.val_freq=-1", *overrides])
        run = RunDirectory(root)
        worker = LocalWorker(
            Opening(config=config, folders=folders_of(run), total_optimizer_steps=20, total_critic_steps=20),
            place=place,
        )
        return cls(worker, place, range(place.rank, PROMPTS, place.size), run)

    def rollouts(self, *, step: int) -> list[Group]:
        """Responses of the generator to this rank's prompts."""
        dataset = PreparedDataset.open(self.run.data, "train")
        requests = [
            GenerationRequest(prompt=dataset[row], sample_index=i, seed=keyed_seed(7, "rollout", 0, step, row, i))
            for row in self.prompts
            for i in range(RESPONSES)
        ]
        self.worker.wake()
        found = {r.key: r for r in self.worker.generate(requests, Sampling(temperature=1.0, max_tokens=LONGEST))}
        self.worker.sleep()
        return [
            Group(prompt=dataset[row], rollouts=[found[dataset[row].uid, i] for i in range(RESPONSES)])
            for row in self.prompts
        ]

    def learned(self, groups: Sequence[Group], *, check_agreement: bool = True) -> UpdateResult:
        """An update in two optimizer steps from made-up advantages; the second half of the prompts is the second."""
        old = self.worker.compute("old_log_probs", [groups])[0]
        made = [train_group(group, values) for group, values in zip(groups, old, strict=True)]
        everything = self.worker.ranks.gather(made)
        wholes = OptimizerBatch.of([g for own in everything for g in own], longest_response=LONGEST)
        batch = OptimizerBatch(groups=made, totals=wholes.totals)
        critic = [batch] if self.worker.trainer.critic is not None else []
        update = UpdateBatch(policy=[batch, batch], critic=critic, kl_coef=0.1, check_agreement=check_agreement)
        return self.worker.update(update)

    def weights(self) -> dict[str, torch.Tensor]:
        """The policy as the generator gets it."""
        return {name: weight.clone() for name, weight in self.worker.trainer.named_weights()}


def train_group(group: Group, old: Sequence[Float32Array]) -> TrainGroup:
    noise = np.random.default_rng([len(group.prompt.uid), *group.rollouts[0].response_ids.tolist()])

    def sample(rollout: Rollout, log_probs: Float32Array) -> TrainSample:
        advantages, values, returns = noise.normal(size=(3, len(log_probs))).astype(np.float32)
        return TrainSample(
            rollout=rollout,
            advantages=advantages,
            old_log_probs=log_probs,
            ref_log_probs=log_probs - np.float32(0.1),
            values=values,
            returns=returns,
        )

    return TrainGroup(prompt=group.prompt, samples=[sample(*pair) for pair in zip(group.rollouts, old, strict=True)])


def responses(groups: Sequence[Group]) -> Mapping[RolloutKey, tuple[list[int], list[float]]]:
    return {r.key: (r.response_ids.tolist(), r.log_probs.tolist()) for group in groups for r in group.rollouts}


@dataclass
class Life:
    """What one rank saw."""

    responses: Sequence[Mapping[RolloutKey, tuple[list[int], list[float]]]]
    updates: Sequence[UpdateResult]
    records: Sequence[str]
    weights: Mapping[str, torch.Tensor]
    exported: Path
    resumed: Mapping[str, torch.Tensor]
    has_process_groups: bool


def live(place: RankPlace, root: Path, out: Path, overrides: Sequence[str]) -> Life:
    """Generate, learn, save, generate, learn; then load what was saved, and learn the last step again."""
    rank = Rank.open(place, root, overrides)
    worker, saved = rank.worker, out / "saved"
    first = rank.rollouts(step=1)
    updates = [rank.learned(first)]
    worker.take_snapshot(model_only=False, probe=probe_of(rank, first), copy=True)
    second = rank.rollouts(step=2)
    records = worker.write_snapshot(saved)
    updates.append(rank.learned(second))
    weights = rank.weights()
    worker.load("saved state", saved)
    updates.append(rank.learned(second))
    resumed = rank.weights()
    worker.export(out / "exported")
    worker.close()
    seconds = [replace(update, seconds={}) for update in updates]
    return Life(
        responses=[responses(first), responses(second)],
        updates=seconds,
        records=sorted(records),
        weights=weights,
        exported=out / "exported",
        resumed=resumed,
        has_process_groups=torch.distributed.is_initialized(),
    )


def probe_of(rank: Rank, groups: Sequence[Group]) -> list[Group]:
    """The first rank's first group, on every rank."""
    return [rank.worker.ranks.gather(list(groups[:1]))[0][0]]


@dataclass(frozen=True)
class Carried:
    """What a rank has, every weight and moment as a whole.

    Attributes:
        loaded: The weights that it began with, as float32 numbers.
        files_read: How many files of weights it read for them.
        state: What it saved.
        next_update: Its part of the update after that.
    """

    loaded: Mapping[str, torch.Tensor]
    files_read: int
    state: Mapping[str, torch.Tensor]
    next_update: UpdateResult


def carry(
    place: RankPlace, meetings: Mapping[str, str], root: Path, cases: Mapping[str, Sequence[str]], source: str | None
) -> dict[str, Carried]:
    """Case -> what was carried. Without a source the state comes from an update."""
    return {
        name: carried(replace(place, meeting=meetings[name]), root, name, overrides, source)
        for name, overrides in cases.items()
    }


def carried(place: RankPlace, root: Path, name: str, overrides: Sequence[str], source: str | None) -> Carried:
    """One case: load the state of `source` or learn, save it for the next number of ranks, and learn once more."""
    with patch.object(modeling_utils, "safe_open", wraps=modeling_utils.safe_open) as opened:
        rank = Rank.open(place, root, overrides)
        worker, trainer = rank.worker, rank.worker.trainer
        worker.load("policy", rank.run.initial_model)
        if trainer.config.critic is not None:
            worker.load("critic", rank.run.initial_model)
    loaded = {f"policy {name}": as_float32(weight) for name, weight in trainer.policy.named_parameters()}
    if trainer.critic is not None:
        critic = trainer.critic._model.named_parameters()
        loaded |= {f"critic {name}": as_float32(weight) for name, weight in critic}
    groups = made_up(rank)
    if source is None:
        rank.learned(groups, check_agreement=False)
    else:
        worker.load("saved state", root / f"{name}-{source}")
    save_state(worker, root / f"{name}-{place.size}", model_only=False, probe=probe_of(rank, groups))
    found = {}
    owners = {"policy": (trainer.policy, trainer.optimizer)}
    if trainer.critic is not None:
        owners["critic"] = (trainer.critic._model, trainer.critic._optimizer)
    for owner, (module, optimizer) in owners.items():
        state = ModuleState.of(module, optimizer, trained_only=False, model_only=False, copies=None)
        assert state.moments is not None
        found |= {f"{owner} {key}": whole(weight).clone() for key, weight in state.weights.items()}
        for key, entries in state.moments.items():
            found |= {f"{owner} {key} {entry}": whole(value).clone() for entry, value in entries.items()}
    next_update = rank.learned(groups, check_agreement=False)
    worker.close()
    return Carried(loaded=loaded, files_read=opened.call_count, state=found, next_update=next_update)


def as_float32(weight: torch.Tensor) -> torch.Tensor:
    """A copy of a weight as a whole."""
    return whole(weight).to(torch.float32, copy=True)


def made_up(rank: Rank) -> list[Group]:
    """Groups of real prompts with made-up responses."""
    dataset = PreparedDataset.open(rank.run.data, "train")

    def rollout(row: int, index: int) -> Rollout:
        noise = np.random.default_rng([row, index])
        ids = noise.integers(0, 256, 2 + index).astype(np.int32)
        return made_up_rollout(dataset[row].uid, index, ids, np.zeros(len(ids), np.float32))

    return [
        Group(prompt=dataset[row], rollouts=[rollout(row, index) for index in range(RESPONSES)]) for row in rank.prompts
    ]
