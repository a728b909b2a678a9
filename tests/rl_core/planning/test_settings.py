"""What `auto` becomes: on a CPU what it has always been, on a GPU what fits, and nothing of what the config says."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_core.config.loading import load_config
from rl_core.config.run import RunConfig
from rl_core.planning.gpu import Gpu
from rl_core.planning.memory import USABLE, memory_forecast
from rl_core.planning.memory_rules import memory_problems
from rl_core.planning.model_sizes import ModelSizes
from rl_core.planning.settings import FEWEST_TOKENS, MOST_TOKENS, ResolvedSettings, resolve_auto
from tests.rl_core.planning.published import Configure, published, sizes_of

EASYR1S = (
    "model.dtype=bfloat16",
    "rollout.n=5",
    "data.rollout_batch_size=512",
    "actor.global_batch_size=128",
    "algorithm.kl={coef: 0.01}",
)
"""Batches of EasyR1's examples."""

CARDS = {24: 23.7, 40: 39.6, 80: 79.6, 141: 140.4}
"""GB by name -> GiB as nvidia-smi has them, of an RTX 4090, an A100 of 40 GB, an H100 and an H200."""


def example(configure: Configure, size: str, *overrides: str) -> tuple[RunConfig, ModelSizes]:
    return published(configure, size, *EASYR1S, *overrides)


def on_card(configure: Configure, size: str, card: int, *overrides: str) -> tuple[ResolvedSettings, list[str]]:
    """What is chosen, and the problems that are left."""
    config, sizes = example(configure, size, *overrides)
    resolved = resolve_auto(config, sizes, Gpu(memory_gib=CARDS[card]))
    problems = memory_problems(resolved.config, sizes, available_gib=CARDS[card], on_gpu=True)
    return resolved, [problem.where for problem in problems]


def test_on_a_cpu_auto_is_what_the_defaults_were(configure):
    config, sizes = example(configure, "3B", "algorithm.advantage.type=gae", "critic={}")
    for known in (sizes, None):
        resolved = resolve_auto(config, known, None)
        assert resolved.values == {
            "model.gradient_checkpointing": False,
            "actor.micro_batch_size_per_device_for_update": 4,
            "actor.micro_batch_size_per_device_for_experience": 16,
            "critic.micro_batch_size_per_device_for_update": 4,
            "critic.micro_batch_size_per_device_for_experience": 16,
            "trainer.offload": "none",
        }
        assert resolved.why == "on a CPU"
        assert "auto" not in resolved.values.values()


def test_a_gpu_whose_memory_is_not_known_is_treated_as_a_cpu_and_says_so(configure):
    config, sizes = example(configure, "3B")
    for known, gpu, why in ((sizes, Gpu(memory_gib=None), "the GPU's memory"), (None, Gpu(80.0), "the model's size")):
        resolved = resolve_auto(config, known, gpu)
        on_cpu = resolve_auto(config, sizes, None).values
        assert resolved.values == {**on_cpu, "rollout.gpu_memory_utilization": 0.6}
        assert resolved.why == f"{why} is not known"


@pytest.mark.parametrize(
    ("size", "card", "overrides"),
    [
        ("3B", 80, []),
        ("3B", 40, ["actor.optim.strategy=adamw_bf16"]),
        ("3B", 24, ["model.lora={rank: 64}"]),
        ("7B", 80, []),
    ],
)
def test_published_models_fit_one_card(configure, size, card, overrides):
    resolved, problems = on_card(configure, size, card, *overrides)
    assert problems == []
    assert "auto" not in resolved.config.model_dump_json(
        include={"model": {"gradient_checkpointing"}, "trainer": {"offload"}}
    )


def test_a_number_in_the_config_is_obeyed(configure):
    given = {
        "model.gradient_checkpointing": False,
        "actor.micro_batch_size_per_device_for_update": 3,
        "actor.micro_batch_size_per_device_for_experience": 7,
        "rollout.gpu_memory_utilization": 0.31,
        "trainer.offload": "optimizer",
    }
    written = [f"{key}={str(value).lower()}" for key, value in given.items()]
    config, sizes = example(configure, "3B", *written)
    for gpu in (None, Gpu(memory_gib=80.0)):
        resolved = resolve_auto(config, sizes, gpu)
        assert resolved.config == config and resolved.values == {}
    one = resolve_auto(example(configure, "3B", written[1])[0], sizes, Gpu(memory_gib=80.0))
    assert one.config.actor.micro_batch_size_per_device_for_update == 3
    assert "actor.micro_batch_size_per_device_for_update" not in one.values


@given(gpu_gib=st.floats(4.0, 300.0), size=st.sampled_from(["3B", "7B"]), longest=st.integers(64, 20_000))
def test_resolved_settings_fit_or_take_the_least(gpu_gib, size, longest):
    config, sizes = drawn(size, longest)
    resolved = resolve_auto(config, sizes, Gpu(memory_gib=gpu_gib))
    forecast = memory_forecast(resolved.config, sizes, gpu_gib=gpu_gib)
    fits = forecast.peak_gib <= USABLE * gpu_gib and forecast.cached_sequences > 0
    assert fits != resolved.why.startswith("takes the least")
    sequences = resolved.config.actor.micro_batch_size_per_device_for_update
    assert isinstance(sequences, int)
    assert sequences == 1 or sequences * 2 * longest <= MOST_TOKENS
    if not resolved.config.model.recomputes_activations:
        assert sequences * 2 * longest >= FEWEST_TOKENS or sequences == 1
    assert 0.0 < resolved.config.rollout.gpu_share <= 0.9
    assert resolve_auto(resolved.config, sizes, Gpu(memory_gib=gpu_gib)).values == {}


def drawn(size: str, longest: int) -> tuple[RunConfig, ModelSizes]:
    overrides = [
        f"model.source={{type: pretrained, path: Qwen/Qwen2.5-VL-{size}-Instruct}}",
        *EASYR1S,
        "cold_start=null",
        "actor.micro_batch_size_per_device_for_update=auto",
        f"data.max_prompt_length={longest}",
        f"rollout.max_response_length={longest}",
    ]
    config = load_config(Path(__file__).parents[3] / "configs" / "quickstart.yaml", overrides)
    return config, sizes_of(config)


def test_a_generator_beside_workers_that_train_gets_nearly_all_of_its_gpu(configure):
    """And so a larger cache than one that shares the GPU with a trainer."""
    caches, shares = [], []
    for placement in ("colocated", "split"):
        config, sizes = example(configure, "7B", f"cluster={{devices: 8, placement: {placement}}}")
        resolved = resolve_auto(config, sizes, Gpu(memory_gib=CARDS[80])).config
        shares.append(resolved.rollout.gpu_share)
        caches.append(memory_forecast(resolved, sizes, gpu_gib=CARDS[80]).cached_sequences)
    assert shares[0] < shares[1] == 0.89 and caches[0] < caches[1]
