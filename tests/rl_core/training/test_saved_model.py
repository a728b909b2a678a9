"""A trained module goes on from what was saved of it, to the bit; the files hold float32 numbers."""

from pathlib import Path

import pytest
import torch
from torch import nn

from rl_core.checkpoints.sharded import load_sharded, model_state, optimizer_state
from rl_core.config.training import OptimConfig
from rl_core.training.optimizer import PolicyOptimizer
from rl_core.training.saved_model import ModuleState, load_optimizer, load_weights, master_weights
from tests.rl_core.training.bfloat16_modules import make_bfloat16, train

FIRST_MOMENT = {"adamw": torch.float32, "adamw_bf16": torch.bfloat16}


def save(folder: Path, module: nn.Module, optimizer: PolicyOptimizer) -> None:
    ModuleState.of(module, optimizer, trained_only=False, model_only=False, copies=None).write(folder)


@pytest.mark.parametrize("strategy", FIRST_MOMENT)
@pytest.mark.parametrize("trained_before_loading", [False, True])
def test_a_saved_model_continues_to_the_bit(strategy, trained_before_loading, tmp_path):
    module, optimizer = make_bfloat16(strategy)
    train(module, optimizer, 3, seed=1)
    save(tmp_path, module, optimizer)
    other, other_optimizer = make_bfloat16(strategy)
    if trained_before_loading:
        train(other, other_optimizer, 2, seed=9)
    lower_bits = load_weights(tmp_path / "model", other, trained_only=False)
    counters = optimizer.counters()
    load_optimizer(tmp_path / "optimizer", other, other_optimizer, lower_bits=lower_bits, counters=counters)
    for each in ((module, optimizer), (other, other_optimizer)):
        train(*each, 3, seed=2)
    numbers, found = (master_weights(m, o.adamw) for m, o in ((module, optimizer), (other, other_optimizer)))
    assert all(torch.equal(found[name], number) for name, number in numbers.items())
    states = [optimizer_state(m, o.adamw) for m, o in ((module, optimizer), (other, other_optimizer))]
    for name, entries in states[0].items():
        assert {key: value.dtype for key, value in entries.items()} == {
            "step": torch.float32,
            "exp_avg": FIRST_MOMENT[strategy],
            "exp_avg_sq": torch.float32,
        }
        assert all(torch.equal(value, states[1][name][key]) for key, value in entries.items())


@pytest.mark.parametrize("strategy", FIRST_MOMENT)
def test_without_moments_the_numbers_and_the_count_of_steps_come_back(strategy, tmp_path):
    module, optimizer = make_bfloat16(strategy)
    train(module, optimizer, 3, seed=1)
    save(tmp_path, module, optimizer)
    other, other_optimizer = make_bfloat16(strategy)
    train(other, other_optimizer, 2, seed=9)
    lower_bits = load_weights(tmp_path / "model", other, trained_only=False)
    load_optimizer(None, other, other_optimizer, lower_bits=lower_bits, counters=optimizer.counters())
    numbers, found = (master_weights(m, o.adamw) for m, o in ((module, optimizer), (other, other_optimizer)))
    assert all(torch.equal(found[name], number) for name, number in numbers.items())
    assert other_optimizer.steps == 3
    assert not optimizer_state(other, other_optimizer.adamw)


def test_the_files_hold_the_numbers_in_float32(tmp_path):
    """As any reader of torch.distributed.checkpoint sees them: one that keeps its weights in float32 needs no more."""
    module, optimizer = make_bfloat16("adamw")
    train(module, optimizer, 3, seed=1)
    save(tmp_path, module, optimizer)
    whole = nn.Linear(7, 5)
    load_sharded(tmp_path / "model", model_state(whole))
    assert torch.equal(whole.weight.detach(), master_weights(module, optimizer.adamw)["weight"])
    assert not torch.equal(whole.weight.detach(), module.weight.detach().float())


def test_trained_bfloat16_weights_have_one_and_no_others():
    """Not a frozen one, nor a float32 one, as a critic's head."""
    module = nn.ModuleDict({"body": nn.Linear(5, 4).bfloat16(), "frozen": nn.Linear(4, 4).bfloat16()})
    module["head"] = nn.Linear(4, 1)
    module["frozen"].requires_grad_(False)
    optimizer = PolicyOptimizer(module, config=OptimConfig(), max_grad_norm=1.0, total_steps=9)
    masters = master_weights(module, optimizer.adamw)
    assert {name: number.dtype for name, number in masters.items()} == {
        "body.weight": torch.float32,
        "body.bias": torch.float32,
    }
    assert all(torch.equal(number, module.get_parameter(name).float()) for name, number in masters.items())
