"""Weights in the host's memory: who owns which memory, and what comes back."""

import pytest
import torch
from torch import nn

from rl_core.training.host_memory import HostWeights


def storages(module: nn.Module) -> set[int]:
    return {parameter.data_ptr() for parameter in module.parameters()}


@pytest.fixture
def module() -> nn.Module:
    module = nn.Linear(4, 3)
    module.weight.requires_grad_(False)
    return module


def test_the_device_has_the_weights_only_inside_the_block(module):
    before = {name: value.clone() for name, value in module.state_dict().items()}
    on_device = storages(module)
    weights = HostWeights(module)
    on_host = storages(module)
    assert not on_device & on_host, "the device's memory is free"
    with weights.on_device():
        assert not storages(module) & on_host
    assert storages(module) == on_host
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())


def test_trained_weights_come_back_changed_and_frozen_ones_as_they_were(module):
    weights = HostWeights(module)
    frozen, trained = module.weight.clone(), module.bias.clone()
    parameters = list(module.parameters())
    with weights.on_device(), torch.no_grad():
        module.weight.add_(1.0)
        module.bias.add_(1.0)
    assert torch.equal(module.weight, frozen) and torch.equal(module.bias, trained + 1.0)
    assert all(now is before for now, before in zip(module.parameters(), parameters, strict=True)), (
        "optimizers know them"
    )


def test_an_error_inside_the_block_leaves_the_weights_on_the_host(module):
    weights = HostWeights(module)
    on_host = storages(module)
    with pytest.raises(RuntimeError, match="out of memory"), weights.on_device():
        raise RuntimeError("out of memory")
    assert storages(module) == on_host
