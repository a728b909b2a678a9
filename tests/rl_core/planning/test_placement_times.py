"""Which placements a plan compares, and at which rates."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from rl_core.config.loading import load_config
from rl_core.config.run import RunConfig
from rl_core.planning.assumed_rates import assumed_rates
from rl_core.planning.gpu import Gpu
from rl_core.planning.gpu_cards import CARDS, card_named
from rl_core.planning.known_models import KNOWN_MODELS
from rl_core.planning.model_sizes import ModelSizes, sizes_of_config
from rl_core.planning.placement_times import PlacementTime, fastest, forecast_step, placement_times
from rl_core.planning.settings import settle
from rl_core.planning.step_time import Arrangement
from rl_core.planning.step_work import Lengths
from tests.rl_core.planning.test_step_time import RATES

BASELINE = Path(__file__).parents[3] / "configs" / "baselines" / "qwen2_5_vl_7b_geo3k_grpo.yaml"
Configure = Callable[..., RunConfig]


def placements(config: RunConfig) -> list[PlacementTime]:
    return placement_times(config, None, None, lengths=Lengths.assumed(config), rates_of=lambda *_: RATES)


def names(config: RunConfig) -> list[str]:
    return [placement.name for placement in placements(config)]


def test_a_single_device_has_one_placement(configure: Configure) -> None:
    assert names(configure()) == ["colocated"]


def test_two_devices_can_be_split_and_work_at_the_same_time(configure: Configure) -> None:
    expected = ["colocated", "split, 1 of 2 generate", "split, 1 of 2 generate, one step off"]
    assert names(configure("cluster.devices=2")) == expected


def test_the_number_of_generating_devices_is_the_best_or_the_configured_one(configure: Configure) -> None:
    best = placements(configure("cluster.devices=4"))[-1]
    for number in (1, 2, 3):
        split = f"cluster={{devices: 4, placement: split, generating_devices: {number}}}"
        *_, configured = placements(configure(split))
        assert configured.name == f"split, {number} of 4 generate, one step off"
        assert configured.time.step >= best.time.step


@pytest.mark.parametrize(
    ("overrides", "left_out"),
    [
        (["algorithm.old_log_probs=recompute"], "one step off"),
        (["algorithm.advantage.type=gae", "critic={global_batch_size: 8}"], "one step off"),
        (["cluster.tensor_parallel_size=2"], "split"),
        (["cluster.min_workers=1"], "split"),
    ],
)
def test_what_a_plan_would_refuse_is_left_out(configure: Configure, overrides: list[str], left_out: str) -> None:
    found = names(configure("cluster.devices=2", *overrides))
    assert found[0] == "colocated"
    assert not any(left_out in name for name in found)


def test_the_fastest_has_the_shortest_step(configure: Configure) -> None:
    found = placements(configure("cluster.devices=4"))
    assert fastest(found).time.step == min(placement.time.step for placement in found)


@pytest.fixture(scope="module")
def seven_billion() -> ModelSizes:
    sizes = sizes_of_config(KNOWN_MODELS["Qwen/Qwen2.5-VL-7B-Instruct"])
    assert sizes is not None
    return sizes


def test_a_card_with_more_of_everything_is_no_slower(configure: Configure, seven_billion: ModelSizes) -> None:
    config = settle(configure("model.dtype=bfloat16"), seven_billion, Gpu(memory_gib=141.0)).config
    lengths = Lengths.assumed(config)
    older, newer = (assumed_rates(config, lengths, sizes=seven_billion, card=CARDS[name]) for name in ("a100", "h200"))
    assert newer.decode_fixed < older.decode_fixed and newer.decode_sequence < older.decode_sequence
    assert newer.update_token < older.update_token and newer.update_fixed < older.update_fixed
    # 7.62e9 parameters beside the vision tower, of 2 bytes, at 70 % of 4.8 TB/s, and 2 ms beside them.
    assert newer.decode_fixed == pytest.approx(2 * 7.616e9 / (0.7 * 4.8e12) + 0.002, rel=0.01)
    assert newer.update_token == pytest.approx(6 * 7.616e9 / (0.35 * 989e12), rel=0.01)


@pytest.mark.parametrize(("sharding", "replicas"), [("full", 1), ("hybrid", 2), ("none", 4)])
def test_replicas_exchange_the_gradients_of_their_part_of_the_weights_apart_from_the_passes(
    configure: Configure, seven_billion: ModelSizes, sharding: str, replicas: int
) -> None:
    """A lone worker, which exchanges nothing, has the same seconds of an optimizer step as replicas of all weights."""
    config = configure(f"cluster={{nodes: 2, devices: 2, sharding: {sharding}}}")
    assert Arrangement.of(config.cluster, in_flight=512, staleness=0).replicas == replicas
    several, one = (
        assumed_rates(placed, Lengths.assumed(placed), sizes=seven_billion, card=CARDS["h200"])
        for placed in (config, configure())
    )
    part = 8.292e9 * replicas / 4
    assert several.exchange == pytest.approx(4 * part / (0.6 * CARDS["h200"].link), rel=0.01)
    assert (several.update_fixed == one.update_fixed) == (sharding == "none")


def test_the_headline_step_takes_what_its_arithmetic_takes(seven_billion: ModelSizes) -> None:
    """EasyR1's example on 8 H100, with prompts of about 450 and responses of about 400 tokens: 1.25 M tree tokens.
    Counted by hand, generation takes 18 to 22 s (2,000 decode steps of 6.5 to 11.6 ms), old and reference log-probs 6 s
    each and the update 24 s at 38 % of the arithmetic (a quarter more at 30 %), the weights 2 to 3 s. With half of the
    longest lengths this was 168 s."""
    config = load_config(BASELINE, ["cluster.devices=8"])
    assert (config.planning.mean_prompt_length, config.planning.mean_response_length) == (450, 400)
    gpu, card = Gpu(memory_gib=CARDS["h100"].memory_gib), CARDS["h100"]
    rates_of = partial(assumed_rates, sizes=seven_billion, card=card)
    lengths = Lengths.assumed(config)
    time = forecast_step(config, seven_billion, gpu, lengths=lengths, rates_of=rates_of)
    assert 18 < time.generate < 22
    assert 36 < time.update < 46
    assert 2 < time.sync < 3
    assert 58 < time.step < 70
    longer = [
        forecast_step(config, seven_billion, gpu, lengths=lengths.with_responses(mean), rates_of=rates_of).step
        for mean in (400, 512, 1024, 2048)
    ]
    assert longer[0] == time.step and longer == sorted(longer)


def test_cards_are_found_by_the_name_that_the_driver_has() -> None:
    assert card_named("NVIDIA H200") is CARDS["h200"]
    assert card_named("NVIDIA H100 PCIe") is None and card_named("") is None
