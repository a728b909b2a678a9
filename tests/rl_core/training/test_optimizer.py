import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from rl_core.config.training import OptimConfig
from rl_core.training.optimizer import PolicyOptimizer
from tests.rl_core.training.bfloat16_modules import make_bfloat16


def make(lr: float = 0.1, **options) -> tuple[nn.Linear, PolicyOptimizer]:
    module = nn.Linear(2, 2)
    nn.init.ones_(module.weight)
    return module, PolicyOptimizer(module, config=OptimConfig(lr=lr, **options), max_grad_norm=1.0, total_steps=10)


def set_gradient(module: nn.Linear, value: float) -> None:
    for parameter in module.parameters():
        parameter.grad = torch.full_like(parameter, value)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_non_finite_gradient_leaves_the_weights_and_is_counted_until_a_good_step(bad):
    module, optimizer = make()
    before = module.weight.detach().clone()
    for streak in (1, 2):
        set_gradient(module, bad)
        assert not optimizer.step().applied
        assert optimizer.nonfinite_streak == streak
    assert torch.equal(module.weight, before)
    set_gradient(module, 1.0)
    assert optimizer.step().applied
    assert optimizer.nonfinite_streak == 0
    assert not torch.equal(module.weight, before)


def test_the_reported_norm_is_the_one_before_clipping():
    module, optimizer = make()
    set_gradient(module, 10.0)
    assert optimizer.step().grad_norm == pytest.approx(10.0 * math.sqrt(6))


def test_biases_do_not_decay():
    module, optimizer = make(weight_decay=0.5)
    nn.init.ones_(module.bias)
    set_gradient(module, 0.0)
    optimizer.step()
    assert torch.all(module.weight < 1)
    assert torch.all(module.bias == 1)


BFLOAT16 = {"adamw": torch.float32, "adamw_bf16": torch.bfloat16}


@pytest.mark.parametrize("strategy", BFLOAT16)
def test_gradients_of_micro_batches_add_up_in_the_strategys_number_format(strategy):
    module, _ = make_bfloat16(strategy)
    for _ in range(300):
        module.weight.float().sum().backward()
    assert module.weight.grad.dtype == BFLOAT16[strategy]
    exact = torch.full_like(module.weight.grad, 300.0)
    assert torch.equal(module.weight.grad, exact) == (strategy == "adamw")  # bfloat16 stops counting at 256


def test_float32_parameters_among_bfloat16_ones_move_as_alone():
    """As a value head on a bfloat16 body."""
    torch.manual_seed(0)
    alone, mixed_in = nn.Linear(3, 3), nn.Linear(3, 3)
    mixed_in.load_state_dict(alone.state_dict())
    mixed = nn.ModuleList([mixed_in, nn.Linear(3, 3).bfloat16()])
    config = OptimConfig(lr=1e-3, strategy="adamw_bf16")
    optimizers = [PolicyOptimizer(m, config=config, max_grad_norm=1e9, total_steps=9) for m in (alone, mixed)]
    for step in range(5):
        for module, optimizer in zip((alone, mixed), optimizers, strict=True):
            for parameter in module.parameters():
                parameter.grad = torch.full_like(parameter, 0.1 * step - 0.2)
            optimizer.step()
    assert torch.equal(alone.weight, mixed_in.weight)
    assert mixed[1].weight.dtype == torch.bfloat16


@pytest.mark.parametrize("schedule", ["linear", "cosine", "wsd"])
@given(
    training_steps=st.integers(2, 30),
    data=st.data(),
    at_once=st.tuples(st.integers(1, 6), st.integers(1, 6)),
    warmup=st.sampled_from([0.0, 0.2]),
)
def test_a_schedule_goes_on_at_its_share_of_the_training_steps_with_other_batches(
    schedule, training_steps, data, at_once, warmup
):
    """A fork or a mended run may have more or fewer optimizer steps in a training step: the rate neither ends before
    the run does nor stays above its end."""
    forked_after = data.draw(st.integers(1, training_steps - 1))
    config = OptimConfig(lr=1.0, lr_scheduler_type=schedule, lr_warmup_ratio=warmup)

    def optimizer(many: int) -> PolicyOptimizer:
        return PolicyOptimizer(
            nn.Linear(1, 1), config=config, max_grad_norm=1.0, total_steps=training_steps * many, steps_at_once=many
        )

    def rates(one: PolicyOptimizer, steps: int, many: int) -> list[float]:
        return [one.step().lr for _ in range(steps * many)]

    first, other, whole = optimizer(at_once[0]), optimizer(at_once[1]), optimizer(at_once[1])
    rates(first, forked_after, at_once[0])
    other.load_counters(first.counters())
    expected = rates(whole, training_steps, at_once[1])[forked_after * at_once[1] :]
    assert rates(other, training_steps - forked_after, at_once[1]) == expected
