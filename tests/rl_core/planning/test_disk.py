"""Disk: how much a run takes, and a word before it is short."""

from collections.abc import Callable
from pathlib import Path

import pytest

from rl_core.config.run import RunConfig
from rl_core.planning.disk import check_free_disk, checkpoint_bytes, disk_forecast
from rl_core.planning.model_sizes import model_sizes
from rl_core.planning.training_state import adapter_parameters

Configure = Callable[..., RunConfig]


@pytest.mark.parametrize(
    ("overrides", "checkpoints", "models", "weights_each"),
    [
        (["trainer.save_limit=2"], 3, 2, 3),
        (["trainer.save_limit=2", "trainer.val_freq=5"], 4, 2, 3),
        (["trainer.save_limit=1", "trainer.save_model_only=true"], 2, 2, 1),
        (["trainer.save_limit=1", "cold_start={steps: 1}"], 2, 3, 3),
    ],
)
def test_the_forecast_counts_every_copy(
    configure: Configure, overrides: list[str], checkpoints: int, models: int, weights_each: int
) -> None:
    config = configure(*overrides)
    sizes = model_sizes(config.model.source)
    weights = sizes.parameters * 4
    assert checkpoint_bytes(config, sizes) == weights_each * weights
    assert disk_forecast(config, sizes).total_bytes == weights * (models + checkpoints * weights_each)


def test_without_moments_a_critics_weights_are_still_there(configure: Configure) -> None:
    gae = ("algorithm.advantage.type=gae", "critic={global_batch_size: 8}", "trainer.save_model_only=true")
    config = configure(*gae)
    sizes = model_sizes(config.model.source)
    assert checkpoint_bytes(config, sizes) == 2 * 4 * sizes.parameters


def test_a_checkpoint_of_adapters_leaves_the_base_out(configure: Configure) -> None:
    config = configure("model.lora={rank: 8}")
    sizes = model_sizes(config.model.source)
    assert checkpoint_bytes(config, sizes) == 12 * adapter_parameters(config.model.lora, sizes)
    assert checkpoint_bytes(config, sizes) < sizes.parameters


def test_a_bfloat16_runs_checkpoint_is_float32(configure: Configure) -> None:
    config = configure("model.dtype=bfloat16")
    sizes = model_sizes(config.model.source)
    assert checkpoint_bytes(config, sizes) == (4 + 8) * sizes.parameters
    alone = configure("model.dtype=bfloat16", "trainer.save_model_only=true")
    assert checkpoint_bytes(alone, sizes) == 4 * sizes.parameters


def test_frozen_weights_are_in_the_checkpoint_in_their_own_format(configure: Configure) -> None:
    config = configure("model.dtype=bfloat16", "model.freeze_vision_tower=true")
    sizes = model_sizes(config.model.source)
    assert sizes.vision_parameters
    trained = sizes.parameters - sizes.vision_parameters
    assert checkpoint_bytes(config, sizes) == (4 + 8) * trained + 2 * sizes.vision_parameters


def test_enough_disk_is_no_problem(tmp_path: Path) -> None:
    assert check_free_disk(tmp_path / "runs" / "not-made-yet", needed_bytes=1) is None


def test_a_disk_that_is_short_is_named_with_both_numbers(tmp_path: Path) -> None:
    problem = check_free_disk(tmp_path / "runs", needed_bytes=1 << 60)
    assert problem is not None
    assert problem.where == f"disk of {tmp_path / 'runs'}"
    assert problem.what.startswith("1073741824.00 GiB are needed and ")
