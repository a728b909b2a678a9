"""Trainers of several ranks that make their passes in different orders, each order from the same weights."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from rl_core.config.loading import load_config
from rl_core.distributed.place import Layout, RankPlace
from rl_core.distributed.ranks import Ranks
from rl_core.models.named_weights import named_hf_weights
from rl_core.models.pixels import PixelCache
from rl_core.training.batches import OptimizerBatch, UpdateBatch
from rl_core.training.trainer import Trainer
from rl_core.types import Float32Array, TrainGroup
from tests.rl_core.builders import groups_of, make_train_group
from tests.rl_core.models.builders import RenderedImages
from tests.rl_core.training.rank_updates import CONFIG

Order = tuple[str, ...]
"""Of reference, old, values and update."""

SETTINGS = ("critic={}", "algorithm.advantage={type: gae}", "algorithm.kl={coef: 0.1}", "actor.optim.lr=0.1")


@dataclass(frozen=True, kw_only=True)
class Kind:
    """What is trained, and where it lies."""

    layout: Layout
    dtype: str
    lora: bool


@dataclass
class Passes:
    """What a rank found in one order.

    Attributes:
        found: Pass -> the numbers of all tokens; of the update, the gradient norms of policy and critic.
        weights: Every weight of the policy after the update.
    """

    found: dict[str, Float32Array]
    weights: torch.Tensor


def in_every_order(
    place: RankPlace, meetings: Mapping[Layout, str], folder: Path, kinds: Sequence[Kind], orders: Sequence[Order]
) -> dict[Kind, dict[Order, Passes]]:
    """What one rank finds."""
    found = {}
    for layout, meeting in meetings.items():
        # A machine a rank: with `hybrid` each has a whole replica, which FSDP2 spreads over one rank.
        ranks = Ranks.join(replace(place, meeting=meeting, ranks_per_node=1), layout)
        for kind in kinds:
            if kind.layout == layout:
                trainer = trainer_of(kind, folder, ranks)
                found[kind] = {order: passes_of(trainer, folder, order) for order in orders}
        ranks.close()
    return found


def trainer_of(kind: Kind, folder: Path, ranks: Ranks) -> Trainer:
    settings = [*SETTINGS, f"model.dtype={kind.dtype}"]
    if kind.lora:
        settings += ["model.lora={rank: 2}"]
    return Trainer(
        load_config(CONFIG, settings),
        model_folder=folder,
        base_folder=folder,
        pixels=PixelCache(folder, RenderedImages()),
        total_optimizer_steps=9,
        total_critic_steps=9,
        ranks=ranks,
    )


def passes_of(trainer: Trainer, folder: Path, order: Order) -> Passes:
    trainer.load_policy(folder)
    trainer.load_reference(folder)
    trainer.load_critic(folder)
    rank = trainer.ranks.place.rank
    own = [train_group(f"p{number}", lengths=(3, 1 + number)) for number in range(trainer.ranks.place.size)]
    totals = OptimizerBatch.of(own, longest_response=8).totals
    batch = OptimizerBatch(groups=own[rank : rank + 1], totals=totals)
    groups = groups_of(batch.groups)
    calls: dict[str, Callable[[], Float32Array]] = {
        "reference": lambda: joined(trainer.reference_log_probs(groups)),
        "old": lambda: joined(trainer.old_log_probs(groups)),
        "values": lambda: joined(trainer.values(groups)),
        "update": lambda: gradient_norms(trainer, batch),
    }
    found = {name: calls[name]() for name in order}
    weights = [weight.float().flatten().clone() for _, weight in named_hf_weights(trainer.policy.model)]
    return Passes(found, torch.cat(weights))


def joined(groups: Sequence[Sequence[Float32Array]]) -> Float32Array:
    return np.concatenate([response for group in groups for response in group])


def gradient_norms(trainer: Trainer, batch: OptimizerBatch) -> Float32Array:
    result = trainer.update(UpdateBatch(policy=[batch], critic=[batch], kl_coef=0.1, check_agreement=False))
    return np.array([report.outcome.grad_norm for report in (*result.policy, *result.critic)], dtype=np.float32)


def train_group(uid: str, *, lengths: tuple[int, ...]) -> TrainGroup:
    group = make_train_group(uid, lengths=lengths)
    samples = [
        replace(sample, ref_log_probs=ones, values=ones, returns=ones)
        for sample in group.samples
        for ones in [np.ones_like(sample.advantages)]
    ]
    return replace(group, samples=samples)
