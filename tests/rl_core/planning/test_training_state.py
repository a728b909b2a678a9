"""The planned numbers of adapter parameters and of bytes on the disk are those that there are."""

from typing import get_args

import pytest

from rl_core.config.model import FamilyName, LoraConfig, TinyModel
from rl_core.models.trained_part import attach_lora
from rl_core.planning.model_sizes import model_sizes
from rl_core.planning.rules import adapter_problems
from rl_core.planning.training_state import adapter_parameters, checkpoint_bytes, disk_bytes
from tests.rl_core.models.builders import trained_parameters
from tests.rl_core.planning.published import sizes_of
from tests.rl_core.planning.test_model_rules import without_memory

TARGETS = [
    {},
    {"target_modules": ("q_proj", "v_proj", "down_proj")},
    {"target_modules": r".*layers\.[02]\..*(up|k)_proj"},
    {"exclude_modules": r".*(visual|mlp).*"},
    {"exclude_modules": None},
    {"exclude_modules": ("visual", "o_proj", "qkv", "proj", "linear_fc1", "linear_fc2"), "target_modules": r".*_proj"},
]


@pytest.mark.parametrize("family", get_args(FamilyName))
def test_the_count_is_exact(family):
    source = TinyModel(type="tiny", family=family, num_layers=3, hidden_size=64, intermediate_size=80, vision_depth=2)
    sizes = model_sizes(source)
    assert sizes is not None
    refused = 0
    for options in TARGETS:
        lora = LoraConfig.model_validate({"rank": 4, **options})
        if problems := [*adapter_problems(lora, sizes)]:
            refused += 1
            assert "matches" in problems[0].what
            continue
        model = without_memory(source)
        attach_lora(model, lora, run_seed=1)
        counted = sum(parameter.numel() for parameter in trained_parameters(model))
        assert counted
        assert adapter_parameters(lora, sizes) == counted, options
    # Each target names a part of the experts, and the last one what holds the linear layers of Gemma 4's tower.
    assert refused == (3 if sizes.experts_per_token else family == "gemma4")


@pytest.mark.parametrize(
    ("overrides", "checkpoints", "models", "weights_each"),
    [
        (["trainer.save_limit=2"], 3, 2, 3),
        (["trainer.save_limit=2", "trainer.val_freq=5"], 4, 2, 3),
        (["trainer.save_limit=1", "trainer.save_model_only=true"], 2, 2, 1),
        (["trainer.save_limit=1", "cold_start={steps: 1}"], 2, 3, 3),
    ],
)
def test_the_forecast_counts_every_copy(configure, overrides, checkpoints, models, weights_each):
    config = configure(*overrides)
    sizes = sizes_of(config)
    weights = sizes.parameters * 4
    assert checkpoint_bytes(config, sizes) == weights_each * weights
    assert disk_bytes(config, sizes) == weights * (models + checkpoints * weights_each)


def test_a_bfloat16_runs_checkpoint_is_float32(configure):
    config = configure("model.dtype=bfloat16")
    sizes = sizes_of(config)
    assert checkpoint_bytes(config, sizes) == (4 + 8) * sizes.parameters
    alone = configure("model.dtype=bfloat16", "trainer.save_model_only=true")
    assert checkpoint_bytes(alone, sizes) == 4 * sizes.parameters


def test_frozen_weights_are_in_the_checkpoint_in_their_own_format(configure):
    config = configure("model.dtype=bfloat16", "model.freeze_vision_tower=true")
    sizes = sizes_of(config)
    assert sizes.vision_parameters
    trained = sizes.parameters - sizes.vision_parameters
    assert checkpoint_bytes(config, sizes) == (4 + 8) * trained + 2 * sizes.vision_parameters
