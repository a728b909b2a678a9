"""Updates whose groups are dealt to several ranks: what each of them builds and computes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
import torch.distributed as dist

from rl_core.config.loading import load_config
from rl_core.config.run import RunConfig
from rl_core.config.training import CriticConfig
from rl_core.distributed.place import Layout, RankPlace
from rl_core.distributed.ranks import LONE, Ranks
from rl_core.distributed.shards import whole
from rl_core.models.named_weights import named_hf_weights
from rl_core.models.policy import PolicyModel
from rl_core.models.sequence_parallel import SequenceParallel
from rl_core.models.sharding import shard
from rl_core.models.trained_part import choose_trained_part
from rl_core.models.value import ValueModel, load_value_model
from rl_core.planning.batches import update_token_budget
from rl_core.timing import PhaseTimer
from rl_core.training.batches import OptimizerBatch, TokenSums
from rl_core.training.critic import Critic
from rl_core.training.log_prob_pass import compute_full_kl, compute_log_probs, compute_values
from rl_core.training.objective import PolicyObjective
from rl_core.training.optimizer import PolicyOptimizer
from rl_core.training.policy_update import PolicyUpdate
from rl_core.types import Float32Array, TrainGroup, TrainSample
from tests.rl_core.builders import groups_of, made_up_rollout
from tests.rl_core.models.builders import Bench, model_config, roughen

CONFIG = Path(__file__).parents[2] / "e2e" / "configs" / "small.yaml"
RAGGED = ((["square-1"], [5, 3, 1]), ([], [2]), (["wide-1"], [4, 4]), ([], [1, 6, 2]), (["square-2"], [3]))
"""Images and response lengths of each group."""

BUDGET = 40
"""Tree tokens of a micro-batch: each rank has several, and not all ranks equally many."""

SETTINGS = (
    "algorithm.loss_avg_mode=seq",
    "algorithm.entropy_coef=0.01",
    "actor.micro_batch_size_per_device_for_update=1",  # sequence, of BUDGET tokens
    f"data.max_prompt_length={BUDGET - 8}",
    "rollout.max_response_length=8",
)


@dataclass(frozen=True, kw_only=True)
class Case:
    """One update.

    Attributes:
        layout: Where the weights lie.
        ranks_per_node: Ranks of a machine; None for all.
        family: Of the tiny model.
        model: Fields of the section `model`.
        overrides: Of the config.
        deal: Which groups each rank has; None deals them in turn.
        critic: Update a critic instead of the policy.
        ranks_per_sequence: Ranks that compute each sequence together.
    """

    layout: Layout = "full"
    ranks_per_node: int | None = None
    family: str = "qwen2_5_vl"
    model: Mapping[str, Any] = field(default_factory=dict)
    overrides: Sequence[str] = ()
    deal: Sequence[Sequence[int]] | None = None
    critic: bool = False
    ranks_per_sequence: int = 1

    def own(self, ranks: Ranks) -> list[int]:
        """The groups of a rank."""
        everything = range(len(RAGGED))
        if self.deal is None or ranks.place.size == 1:
            return list(everything[ranks.learner :: ranks.learners])
        return list(self.deal[ranks.learner])


@dataclass
class Found:
    """What came out on one rank.

    Attributes:
        gradients: Parameter -> the gradient of the whole optimizer batch.
        tokens: Sums over the rank's own groups.
        norms: Gradient norm of each optimizer step.
        weights: Name -> weight after two optimizer steps of SGD from the same batch.
        passes: Group -> log-probs (values, for a critic) before the steps.
        exchanges: How often replicas of weights added up their gradients for the first optimizer step.
        phases: What the update has timed.
    """

    gradients: dict[str, torch.Tensor]
    tokens: list[TokenSums]
    norms: list[float]
    weights: dict[str, torch.Tensor]
    passes: dict[int, list[Float32Array]]
    exchanges: int
    phases: set[str]


def on_ranks(place: RankPlace, meetings: Mapping[str, str], root: Path, cases: Mapping[str, Case]) -> dict[str, Found]:
    """All cases on one rank."""
    found = {}
    for name, case in cases.items():
        here = replace(place, meeting=meetings[name], ranks_per_node=case.ranks_per_node or place.size)
        ranks = Ranks.join(here, case.layout, ranks_per_sequence=case.ranks_per_sequence)
        found[name] = compute(case, root, ranks)
        ranks.close()
    return found


def compute(case: Case, root: Path, ranks: Ranks = LONE, *, only: Sequence[int] | None = None) -> Found:
    """What a rank finds; alone, it has all groups. With `only`, it has some groups, and their own denominators."""
    bench = Bench.load(root / case.family, **case.model)
    numbers = list(only or case.own(ranks))
    has_vision = hasattr(bench.policy.config, "vision_config")
    every = [group_of(bench, images if has_vision else [], n, seed) for seed, (images, n) in enumerate(RAGGED)]
    own = [every[number] for number in numbers]
    batch = OptimizerBatch.of(every if only is None else own, longest_response=8)
    batch = OptimizerBatch(groups=own, totals=batch.totals)
    config = load_config(CONFIG, [*SETTINGS, *case.overrides])
    assert update_token_budget(config) == BUDGET
    judge = critic_of if case.critic else policy_of
    update, module, optimizer, passes = judge(case, config, bench, root, ranks)
    computed = dict(zip(numbers, passes(own), strict=True))
    with patch.object(dist, "all_reduce", wraps=dist.all_reduce) as exchanged:
        tokens = update.accumulate_gradient(batch)
    gradients = {name: whole(p.grad).clone() for name, p in module.named_parameters() if p.grad is not None}
    module.zero_grad(set_to_none=True)
    optimizer.adamw = torch.optim.SGD([p for p in module.parameters() if p.requires_grad], lr=0.1)
    timer = PhaseTimer()
    batches = [batch, batch]
    reports = update.update(batches) if case.critic else update.run(batches, meter=None, timer=timer)
    inner = module.body if case.critic else module.model
    weights = {name: weight.clone() for name, weight in named_hf_weights(inner)}
    norms = [report.outcome.grad_norm for report in reports]
    return Found(gradients, tokens, norms, weights, computed, exchanged.call_count, {*timer.seconds})


def policy_of(case: Case, config: RunConfig, bench: Bench, root: Path, ranks: Ranks) -> Any:
    """An update of the policy, the module, its optimizer, and its pass without gradients."""
    policy, of_model = bench.policy, model_config(root / case.family, **case.model)
    choose_trained_part(policy.model, of_model, run_seed=1)
    roughen_adapters(policy)
    reference = None
    if config.algorithm.kl is not None:
        reference = Bench.load(root / case.family, **case.model).policy.requires_grad_(False)
    for model in (policy, reference):
        if model is not None:
            spread(model, ranks, float32_masters=config.actor.optim.strategy != "adamw_bf16")
    optimizer = PolicyOptimizer(policy, config=config.actor.optim, max_grad_norm=1.0, total_steps=9)
    update = PolicyUpdate(
        policy=policy,
        reference=reference,
        objective=PolicyObjective(config.algorithm, kl_coef=None if config.algorithm.kl is None else 0.1),
        optimizer=optimizer,
        pixels=bench.pixels,
        config=config,
        ranks=ranks,
    )
    shared = {"pixels": bench.pixels, "temperature": 0.9, "token_budget": BUDGET, "ranks": ranks}

    def passes(groups: Sequence[TrainGroup]) -> list[list[Float32Array]]:
        if reference is not None:
            return compute_full_kl(policy, reference, groups_of(groups), **shared)  # type: ignore[arg-type]
        return compute_log_probs(policy, groups_of(groups), **shared)  # type: ignore[arg-type]

    return update, policy, optimizer, passes


def critic_of(case: Case, config: RunConfig, bench: Bench, root: Path, ranks: Ranks) -> Any:
    """The same of a critic."""
    critic = load_value_model(root / case.family, model_config(root / case.family, **case.model))
    roughen(critic)
    spread(critic, ranks, float32_masters=True)
    size = config.actor.micro_batch_size_per_device_for_update
    settings = CriticConfig.model_validate({"micro_batch_size_per_device_for_update": size})
    update = Critic(critic, config=config, critic=settings, pixels=bench.pixels, total_steps=9, ranks=ranks)

    def passes(groups: Sequence[TrainGroup]) -> list[list[Float32Array]]:
        return compute_values(critic, groups_of(groups), pixels=bench.pixels, token_budget=BUDGET, ranks=ranks)

    return update, critic, update._optimizer, passes


def spread(model: PolicyModel | ValueModel, ranks: Ranks, *, float32_masters: bool) -> None:
    """Spread a model over several ranks, as the trainer does."""
    if ranks.shards is not None:
        shard(model, ranks.shards, float32_masters=float32_masters)
    if ranks.sequence is not None:
        model.share_sequences(SequenceParallel.of(ranks.sequence))


def roughen_adapters(policy: torch.nn.Module) -> None:
    """The second matrix of a new adapter is zero, and its first would have no gradient."""
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for name, weight in policy.named_parameters():
            if "lora_B" in name:
                weight.copy_(0.1 * torch.randn(weight.shape, generator=generator))


def group_of(bench: Bench, images: Sequence[str], lengths: Sequence[int], seed: int) -> TrainGroup:
    tree = bench.tree([3] * (len(images) + 1), images, lengths, seed=seed)
    noise = np.random.default_rng(seed)

    def sample(index: int, response: np.ndarray) -> TrainSample:
        advantages, old, values = noise.normal(size=(3, len(response))).astype(np.float32)
        rollout = made_up_rollout(tree.prompt.uid, index, response, old)
        return TrainSample(
            rollout=rollout, advantages=advantages, old_log_probs=old - 5.0, values=values, returns=values + advantages
        )

    return TrainGroup(prompt=tree.prompt, samples=[sample(*pair) for pair in enumerate(tree.responses)])
