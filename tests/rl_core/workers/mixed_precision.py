"""A small bfloat16 policy and a loss, for one process and for the workers of FSDP2 alike."""

from collections.abc import Callable, Sequence
from pathlib import Path

from torch import nn

from rl_core.config.training import OptimConfig
from rl_core.models.packing import pack_trees
from rl_core.training.optimizer import PolicyOptimizer
from tests.rl_core.models.builders import Bench

START = (3, 4)
"""Seeds of the steps before the checkpoint."""


def build(folder: Path) -> tuple[Bench, Callable[[nn.Module], PolicyOptimizer]]:
    """A policy, and what makes its optimizer; no gradient is clipped."""

    def optimizer_of(module: nn.Module) -> PolicyOptimizer:
        return PolicyOptimizer(module, config=OptimConfig(lr=1e-5), max_grad_norm=1e9, total_steps=9)

    return Bench.load(folder, dtype="bfloat16"), optimizer_of


def train(bench: Bench, optimizer: PolicyOptimizer, *, seeds: Sequence[int]) -> None:
    """One step a seed, of two micro-batches."""
    for seed in seeds:
        for image, lengths in (("wide", [5, 3]), ("square", [2, 4])):
            tree = bench.tree([4, 4], [f"{image}-{seed}"], lengths, seed=seed)
            packed = pack_trees(
                [tree], pixels=bench.pixels, model_config=bench.policy.config, device=bench.policy.device
            )
            bench.policy(packed, temperature=0.8).log_probs.sum().backward()
        optimizer.step()
