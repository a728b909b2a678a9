"""What a checkpoint holds of bfloat16 weights are float32 numbers, whole."""

import pytest
import torch
from torch import nn

from rl_core.config.training import OptimConfig
from rl_core.training.master_weights import empty_master_weights, give_lower_bits, master_weights, take_master_weights
from rl_core.training.optimizer import PolicyOptimizer


def body_and_head() -> nn.ModuleDict:
    """A trained and a frozen bfloat16 layer, and a float32 one, as a critic's head."""
    torch.manual_seed(0)
    module = nn.ModuleDict({"body": nn.Linear(5, 4).bfloat16(), "frozen": nn.Linear(4, 4).bfloat16()})
    module["head"] = nn.Linear(4, 1)
    module["frozen"].requires_grad_(False)
    return module


def optimizer_of(module: nn.Module, strategy: str = "adamw") -> PolicyOptimizer:
    return PolicyOptimizer(module, config=OptimConfig(lr=1e-5, strategy=strategy), max_grad_norm=1.0, total_steps=9)


def take_steps(module: nn.ModuleDict, optimizer: PolicyOptimizer, *, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    for _ in range(4):
        hidden = module["frozen"](module["body"](torch.randn(3, 5, generator=generator).bfloat16()))
        module["head"](hidden.float()).square().sum().backward()
        optimizer.step()


def test_trained_bfloat16_weights_have_one_and_no_others() -> None:
    module = body_and_head()
    masters = master_weights(module, optimizer_of(module).adamw)
    assert {name: number.dtype for name, number in masters.items()} == {
        "body.weight": torch.float32,
        "body.bias": torch.float32,
    }
    assert all(torch.equal(number, module.get_parameter(name).float()) for name, number in masters.items())


@pytest.mark.parametrize("strategy", ["adamw", "adamw_bf16"])
def test_they_move_where_the_weights_round_it_away(strategy: str) -> None:
    """Four steps of 1e-5 on weights of about 0.4, whose neighbours are 2e-3 away."""
    module = body_and_head()
    optimizer = optimizer_of(module, strategy)
    before = {name: parameter.detach().clone() for name, parameter in module.named_parameters()}
    take_steps(module, optimizer, seed=1)
    number = master_weights(module, optimizer.adamw)["body.weight"]
    large = before["body.weight"].abs() > 0.1
    moved = (number - before["body.weight"].float())[large].abs()
    assert large.sum() > 5
    assert moved.min() > 1e-6 and moved.max() < 5e-5
    assert torch.equal(module["body"].weight[large], before["body.weight"][large])


def test_taken_back_they_train_on_as_before() -> None:
    module, other = body_and_head(), body_and_head()
    optimizers = optimizer_of(module), optimizer_of(other)
    take_steps(module, optimizers[0], seed=1)
    numbers = {name: number.clone() for name, number in master_weights(module, optimizers[0].adamw).items()}
    assert empty_master_weights(other).keys() == numbers.keys()
    take_steps(other, optimizers[1], seed=7)
    lower_bits = take_master_weights(other, numbers)
    give_lower_bits(other, optimizers[1].adamw, lower_bits)
    assert torch.equal(other["body"].weight, module["body"].weight)
    found = master_weights(other, optimizers[1].adamw)
    assert all(torch.equal(found[name], number) for name, number in numbers.items())
    assert any(lower.any() for lower in lower_bits.values())


def test_without_an_optimizer_a_weight_is_its_own_number() -> None:
    module = body_and_head()
    assert torch.equal(master_weights(module, None)["body.weight"], module["body"].weight.float())


def test_float32_weights_are_whole_already() -> None:
    module = nn.Linear(2, 2)
    optimizer = optimizer_of(module)
    assert master_weights(module, optimizer.adamw) == {}
    give_lower_bits(module, optimizer.adamw, take_master_weights(module, {}))
