"""What RL trains, and what it leaves alone."""

import re

import pytest

from rl_core.families.registry import vision_modules
from rl_core.models.trained_part import choose_trained_part
from tests.rl_core.models.builders import TEXT_FAMILIES, VISION_FAMILIES, Bench, model_config

FROZEN = {"freeze_vision_tower": True}


@pytest.mark.parametrize("family", [*VISION_FAMILIES, "gemma4"])
@pytest.mark.parametrize("checkpointing", [False, True], ids=["stored", "recomputed"])
def test_a_frozen_vision_tower_gets_no_gradient_and_the_rest_gets_the_same(family, checkpointing, model_folder):
    gradients = []
    for options in ({}, FROZEN):
        bench = Bench.load(model_folder(family), gradient_checkpointing=checkpointing)
        choose_trained_part(bench.policy.model, model_config(model_folder(family), **options), run_seed=1)
        trees = [bench.tree([3, 4], ["wide-1"], [5, 3])]
        packed = bench.pack(trees)
        bench.policy(packed, temperature=1.0).log_probs.sum().backward()
        named = bench.policy.model.named_parameters()
        gradients.append({name: weight.grad for name, weight in named if weight.grad is not None})
    whole, frozen = gradients
    assert {name for name in whole if name not in frozen} == {
        name for name in whole if re.fullmatch(vision_modules(), name)
    }
    assert len(frozen) < len(whole)
    assert all(gradient.equal(whole[name]) for name, gradient in frozen.items())


@pytest.mark.parametrize("family", TEXT_FAMILIES)
def test_a_model_without_a_vision_tower_is_named(family, model_folder):
    bench = Bench.load(model_folder(family))
    with pytest.raises(ValueError, match=r"a \w+ model has no vision tower"):
        choose_trained_part(bench.policy.model, model_config(model_folder(family), **FROZEN), run_seed=1)
