"""Ranks that each have all weights add up their gradients."""

from pathlib import Path

import torch
from torch import nn

from rl_core.distributed.collectives import sum_gradients
from rl_core.distributed.ranks import LONE
from tests.rl_core.distributed.gradients import SHAPES, add_up, gradient_of
from tests.rl_core.distributed.spmd import run_ranks


def test_every_rank_has_the_sum_bucket_by_bucket(tmp_path: Path) -> None:
    for gradients, numbers in run_ranks(add_up, tmp_path, size=2):
        assert numbers == [6, 15, 10, 8], "which have a gradient; large; matrix and vector; rounded and here"
        for name in SHAPES:
            terms = [term for rank in range(2) if (term := gradient_of(name, rank)) is not None]
            if terms:
                assert torch.equal(gradients[name], sum(terms)), name
                assert gradients[name].dtype == torch.float32
            else:
                assert gradients[name] is None, name


def test_a_rank_that_is_alone_keeps_its_gradient() -> None:
    module = nn.Linear(2, 1)
    module.weight.grad = torch.ones(1, 2)
    sum_gradients(module, LONE)
    assert torch.equal(module.weight.grad, torch.ones(1, 2)) and module.bias.grad is None
