"""A policy update whose groups are dealt to several ranks: what each of them builds and computes."""

import pickle
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist

from rl_core.config.loading import load_config
from rl_core.training.batches import OptimizerBatch, TokenSums
from rl_core.training.objective import PolicyObjective
from rl_core.training.optimizer import PolicyOptimizer
from rl_core.training.policy_update import PolicyUpdate
from rl_core.types import Rollout, TrainGroup, TrainSample
from tests.rl_core.models.builders import Bench

CONFIG = Path(__file__).parents[2] / "e2e" / "configs" / "small.yaml"
RAGGED = ((["square-1"], [5, 3, 1]), ([], [2]), (["wide-1"], [4, 4]), ([], [1, 6, 2]), (["square-2"], [3]))
"""Images and response lengths of each group."""


def build(folder: Path) -> tuple[PolicyUpdate, OptimizerBatch, torch.nn.Module]:
    """The update of the same policy, and the same whole optimizer batch, wherever it is called."""
    config = load_config(CONFIG, ["algorithm.loss_avg_mode=seq", "algorithm.entropy_coef=0.01"])
    bench = Bench.load(folder)
    optimizer = PolicyOptimizer(bench.policy, config=config.actor.optim, max_grad_norm=1.0, total_steps=9)
    update = PolicyUpdate(
        bench.policy,
        reference=None,
        objective=PolicyObjective(config.algorithm, kl_coef=None),
        optimizer=optimizer,
        pixels=bench.pixels,
        config=config,
    )
    groups = [group_of(bench, images, lengths, seed) for seed, (images, lengths) in enumerate(RAGGED)]
    return update, OptimizerBatch.of(groups, longest_response=8), bench.policy


def group_of(bench: Bench, images: Sequence[str], lengths: Sequence[int], seed: int) -> TrainGroup:
    tree = bench.tree([3] * (len(images) + 1), images, lengths, seed=seed)
    noise = np.random.default_rng(seed)

    def sample(index: int, response: np.ndarray) -> TrainSample:
        advantages, old = noise.normal(size=(2, len(response))).astype(np.float32)
        rollout = Rollout(
            prompt_uid=tree.prompt.uid,
            sample_index=index,
            response_ids=response,
            log_probs=old,
            text="",
            finish_reason="stop",
            policy_version=0,
        )
        return TrainSample(rollout=rollout, advantages=advantages, old_log_probs=old - 5.0)

    return TrainGroup(prompt=tree.prompt, samples=[sample(*pair) for pair in enumerate(tree.responses)])


def gradient(policy: torch.nn.Module) -> torch.Tensor:
    """Of all parameters; zeros where a rank has had nothing that touches one."""
    parts = [p.grad if p.grad is not None else torch.zeros_like(p) for p in policy.parameters()]
    return torch.cat([part.flatten() for part in parts])


def computed(folder: Path, part: slice) -> tuple[torch.Tensor, list[TokenSums]]:
    """Gradient and token sums of a part of the groups, under the denominators of all."""
    update, whole, policy = build(folder)
    tokens = update.accumulate_gradient(OptimizerBatch(groups=whole.groups[part], totals=whole.totals))
    return gradient(policy), tokens


def main() -> None:
    """One of two ranks: each takes every other group, the gradients are added up, rank 0 writes what came out."""
    rank, folder = int(sys.argv[1]), Path(sys.argv[2])
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
    total, tokens = computed(folder / "model", slice(rank, None, 2))
    dist.all_reduce(total)
    gathered: list[list[TokenSums]] = [[], []]
    dist.all_gather_object(gathered, tokens)
    if rank == 0:
        (folder / "found.pickle").write_bytes(pickle.dumps((total.numpy(), [part for own in gathered for part in own])))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
