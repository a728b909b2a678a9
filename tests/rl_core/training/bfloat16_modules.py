"""A bfloat16 module, its optimizer, and some steps of both."""

import torch
from torch import nn

from rl_core.config.training import OptimConfig
from rl_core.training.optimizer import PolicyOptimizer


def make_bfloat16(strategy: str) -> tuple[nn.Linear, PolicyOptimizer]:
    torch.manual_seed(0)
    module = nn.Linear(7, 5).bfloat16()
    config = OptimConfig(lr=1e-4, strategy=strategy)
    return module, PolicyOptimizer(module, config=config, max_grad_norm=1.0, total_steps=10)


def train(module: nn.Linear, optimizer: PolicyOptimizer, steps: int, *, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        for _ in range(3):
            module(torch.randn(4, 7, generator=generator).bfloat16()).float().square().sum().backward()
        optimizer.step()
