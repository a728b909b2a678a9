import math

import pytest
import torch
from torch import nn

from rl_core.config.training import OptimConfig
from rl_core.training.optimizer import PolicyOptimizer


def make(lr: float = 0.1, **options) -> tuple[nn.Linear, PolicyOptimizer]:
    module = nn.Linear(2, 2)
    nn.init.ones_(module.weight)
    return module, PolicyOptimizer(module, config=OptimConfig(lr=lr, **options), max_grad_norm=1.0, total_steps=10)


def set_gradient(module: nn.Linear, value: float) -> None:
    for parameter in module.parameters():
        parameter.grad = torch.full_like(parameter, value)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_non_finite_gradient_leaves_the_weights_and_is_counted(bad: float) -> None:
    module, optimizer = make()
    before = module.weight.detach().clone()
    for streak in (1, 2):
        set_gradient(module, bad)
        assert not optimizer.step().applied
        assert optimizer.nonfinite_streak == streak
    assert torch.equal(module.weight, before)


def test_a_good_step_ends_the_streak_and_moves_the_weights() -> None:
    module, optimizer = make()
    before = module.weight.detach().clone()
    set_gradient(module, math.nan)
    optimizer.step()
    set_gradient(module, 1.0)
    assert optimizer.step().applied
    assert optimizer.nonfinite_streak == 0
    assert not torch.equal(module.weight, before)


def test_the_reported_norm_is_the_one_before_clipping() -> None:
    module, optimizer = make()
    set_gradient(module, 10.0)
    assert optimizer.step().grad_norm == pytest.approx(10.0 * math.sqrt(6))


def test_biases_do_not_decay() -> None:
    module, optimizer = make(weight_decay=0.5)
    nn.init.ones_(module.bias)
    set_gradient(module, 0.0)
    optimizer.step()
    assert torch.all(module.weight < 1)
    assert torch.all(module.bias == 1)
