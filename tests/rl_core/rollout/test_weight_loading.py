"""Strict weight names."""

import pytest
import torch
from safetensors.torch import load_file

from rl_core.config.model import LoraConfig
from rl_core.models.named_weights import named_adapters, named_hf_weights
from rl_core.models.trained_part import attach_lora
from rl_core.rollout.weight_loading import StrictWeights, expected_adapter_names, expected_weight_names
from tests.rl_core.rollout.engines import FAMILIES, load_tiny_policy

EXPECTED = frozenset({"a.weight", "a.bias", "b.weight"})


def _weights(*names: str) -> list[tuple[str, torch.Tensor]]:
    return [(name, torch.full((1,), float(number))) for number, name in enumerate(names)]


@pytest.mark.parametrize("family", FAMILIES)
def test_the_expected_names_are_those_that_the_trainer_gives(family, tiny_folders):
    policy = load_tiny_policy(family, tiny_folders[family])
    names = expected_weight_names(policy.folder)
    assert names.keys() == {name for name, _ in named_hf_weights(policy.model)}
    assert {*names.values()} == load_file(policy.folder / "model.safetensors").keys()


@pytest.mark.parametrize("family", FAMILIES)
def test_the_expected_adapters_are_those_that_the_trainer_gives(family, tiny_folders):
    lora = LoraConfig(rank=2, target_modules=("q_proj", "down_proj"))
    policy = load_tiny_policy(family, tiny_folders[family])
    names = expected_weight_names(policy.folder)
    attach_lora(policy.model, lora, run_seed=1)
    adapters = expected_adapter_names(policy.folder, lora)
    assert adapters == {name for name, _ in named_adapters(policy.model)}
    assert names.keys() == {name for name, _ in named_hf_weights(policy.model, merged=False)}
    assert len(adapters) == 2 * 2 * 2  # matrices x layers x blocks


def test_complete_weights_pass_unchanged():
    given = _weights("b.weight", "a.bias", "a.weight")
    strict = StrictWeights(given, expected=EXPECTED)
    assert list(strict) == given
    strict.check()


def test_every_wrong_name_is_told_and_held_back():
    strict = StrictWeights(_weights("a.weight", "c.weight", "a.weight", "b.weight"), expected=EXPECTED)
    assert [name for name, _ in strict] == ["a.weight", "b.weight"]
    with pytest.raises(ValueError) as error:
        strict.check()
    assert "1 missing (a.bias); 1 unknown (c.weight); 1 given twice (a.weight)" in str(error.value)
