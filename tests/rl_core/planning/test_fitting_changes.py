"""What is proposed where a run does not fit is enough, is needed, and is the cheapest."""

from collections.abc import Callable

import pytest

from rl_core.config.run import RunConfig
from rl_core.planning.fitting_changes import Change, MemoryLimit, fitting_changes, gpus_that_fit, with_changes
from rl_core.planning.memory_rules import memory_problems
from rl_core.planning.model_sizes import ModelSizes, model_sizes

Configure = Callable[..., RunConfig]

LARGE_PASSES = ("actor.micro_batch_size_per_device_for_update=64", "trainer.offload=none")
ROUNDS = {"model.dtype", "actor.optim.strategy", "critic.optim.strategy"}
TRAINS_LESS = {"model.freeze_vision_tower", "model.lora"}


def vision_model(configure: Configure, size: str, *overrides: str) -> tuple[RunConfig, ModelSizes]:
    source = f"model.source={{type: pretrained, path: Qwen/Qwen2.5-VL-{size}-Instruct}}"
    config = configure(source, "data.max_prompt_length=2048", "rollout.max_response_length=2048", *overrides)
    sizes = model_sizes(config.model.source)
    assert sizes is not None
    return config, sizes


@pytest.mark.parametrize("gib", [24.0, 40.0, 80.0])
@pytest.mark.parametrize("size", ["3B", "7B"])
@pytest.mark.parametrize(
    "overrides",
    [
        (),
        LARGE_PASSES,
        ("model.dtype=bfloat16", *LARGE_PASSES, "model.gradient_checkpointing=false"),
        ("model.dtype=bfloat16", "critic={}", "algorithm.advantage.type=gae", "model.log_prob_chunk_tokens=16384"),
        ("model.dtype=bfloat16", "cluster={devices: 2, sharding: none}", "rollout.gpu_memory_utilization=0.9"),
    ],
    ids=["float32", "large passes", "nothing recomputed", "critic", "two replicas"],
)
def test_the_proposed_changes_are_enough_and_each_is_needed(
    configure: Configure, size: str, gib: float, overrides: tuple[str, ...]
) -> None:
    config, sizes = vision_model(configure, size, *overrides)
    limit = MemoryLimit(gib=gib, on_gpu=True)
    if limit.fits(config, sizes):
        assert not memory_problems(config, sizes, available_gib=gib, on_gpu=True)
        return
    changes = fitting_changes(config, sizes, limit)
    if changes is None:
        assert (size == "7B" and gib == 24.0) or (config.critic is not None and gib < 80.0)
        return
    assert limit.fits(with_changes(config, changes), sizes)
    for change in changes:
        assert not limit.fits(with_changes(config, [other for other in changes if other is not change]), sizes)
    written = [f"{change.key}={change.shown}" for change in changes]
    changed = vision_model(configure, size, *overrides, *written)[0]
    assert not memory_problems(changed, sizes, available_gib=gib, on_gpu=True)


def keys(changes: list[Change] | None) -> set[str]:
    assert changes is not None
    return {change.key for change in changes}


def test_what_costs_time_comes_before_what_rounds_and_what_trains_less(configure: Configure) -> None:
    config, sizes = vision_model(configure, "3B", "model.dtype=bfloat16", *LARGE_PASSES)
    on_80 = keys(fitting_changes(config, sizes, MemoryLimit(gib=79.6, on_gpu=True)))
    assert on_80 and not on_80 & (ROUNDS | TRAINS_LESS)
    full = vision_model(configure, "3B")[0]
    on_24 = keys(fitting_changes(full, sizes, MemoryLimit(gib=23.7, on_gpu=True)))
    assert on_24 & (ROUNDS | TRAINS_LESS)


def test_a_setting_that_is_left_to_the_forecast_is_shown_as_what_it_becomes(configure: Configure) -> None:
    config, sizes = vision_model(configure, "3B", "model.dtype=bfloat16", *LARGE_PASSES)
    changes = fitting_changes(config, sizes, MemoryLimit(gib=79.6, on_gpu=True))
    assert changes and all("auto" not in str(change) for change in changes)


@pytest.mark.parametrize(("family", "side"), [("Qwen2.5-VL-3B", 28), ("Qwen3-VL-4B", 32)])
def test_shorter_prompts_come_last_and_with_images_that_fit_into_them(
    configure: Configure, family: str, side: int
) -> None:
    source = f"model.source={{type: pretrained, path: Qwen/{family}-Instruct}}"
    config = configure(source, "data.max_prompt_length=32768", "data.max_pixels=16777216", "model.dtype=bfloat16")
    sizes = model_sizes(config.model.source)
    assert sizes is not None
    limits = (MemoryLimit(gib=float(gib), on_gpu=True) for gib in range(16, 80))
    limit, changes = next((limit, found) for limit in limits if (found := fitting_changes(config, sizes, limit)))
    shorter = changes[-1]
    assert shorter.key == "data.max_prompt_length" and shorter.value < 32768
    assert f"{shorter}".endswith(f" with data.max_pixels {int(0.75 * shorter.value * side * side)}")
    small_images = config.data.model_copy(update={"max_pixels": 100_000})
    same = fitting_changes(config.model_copy(update={"data": small_images}), sizes, limit)
    assert same and same[-1].value == shorter.value and same[-1].note == ""


def test_on_a_cpu_smaller_passes_come_first(configure: Configure) -> None:
    config, sizes = vision_model(configure, "3B", "actor.micro_batch_size_per_device_for_update=64")
    least = MemoryLimit(gib=1e4, on_gpu=False)
    needed = least.needed_gib(least.forecast(config, sizes))
    changes = fitting_changes(config, sizes, MemoryLimit(gib=needed - 1.0, on_gpu=False))
    assert changes and str(changes[0]) == "actor.micro_batch_size_per_device_for_update to 1" and len(changes) == 1


def test_where_nothing_is_enough_nothing_is_proposed(configure: Configure) -> None:
    config, sizes = vision_model(configure, "7B", "model.dtype=bfloat16")
    limit = MemoryLimit(gib=8.0, on_gpu=True)
    assert fitting_changes(config, sizes, limit) is None and gpus_that_fit(config, sizes, limit) is None
