"""The forecast of step time: its laws, and that it says what cards have shown."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_core.config.loading import load_config
from rl_core.planning.gpu import CARDS, Gpu
from rl_core.planning.settings import resolve_auto
from rl_core.planning.step_time import ARITHMETIC, BANDWIDTH, DECODE_OVERHEAD, CardTime, Lengths
from tests.rl_core.planning.published import sizes_of

ROOT = Path(__file__).parents[3]
CONFIG = ROOT / "configs" / "baselines" / "qwen2_5_vl_3b_geo3k_grpo.yaml"
SHOWN = ROOT / "benchmarks" / "results"


def card_time(card: str, lengths: Lengths, *overrides: str) -> CardTime:
    config, gib = load_config(CONFIG, overrides), CARDS[card].memory_gib
    sizes = sizes_of(config)
    return CardTime(
        config=resolve_auto(config, sizes, Gpu(memory_gib=gib)).config, sizes=sizes, card=CARDS[card], lengths=lengths
    )


def of_length(response: float, *, prompt: float = 1336.0) -> Lengths:
    """The lengths of the checks on a card, whose prompts are an image of 1296 tokens and a question of about 40."""
    return Lengths(prompt=prompt, response=response, longest=response, image_share=0.97)


def shown(card: str, check: str) -> dict[str, float]:
    """The figures of a check on a card."""
    findings = json.loads((SHOWN / f"device_{card}.json").read_text())["findings"]
    (figures,) = [finding["figures"] for finding in findings if finding["check"] == f"configured model{check}"]
    return figures


@pytest.mark.parametrize(("response", "groups", "check"), [(2048, 3, "long"), (128, 17, "short")])
def test_an_update_takes_what_it_took_on_an_h200(response, groups, check):
    """Where images are most of the work, too: their tower's operations count."""
    figures, time = shown("h200", f", {check} responses: speed"), card_time("h200", of_length(response))
    assert time.passes(groups) + time.optimizer() == pytest.approx(figures["seconds"], rel=0.12)


def test_generating_takes_what_it_took_on_an_h100():
    time = card_time("h100", of_length(128))
    assert time.generate(16, 1024) == pytest.approx(shown("h100", ": speed of generation")["seconds"], rel=0.05)


def test_the_seconds_by_hand():
    """3.086e9 parameters besides the vision tower, of 2 bytes, and 36 layers with two heads of 128 keys and values."""
    time = card_time("h200", of_length(100, prompt=500))
    language, tower, card = 3.086e9, 0.6687e9, CARDS["h200"]
    prefill = 8 * 2 * (language * 500 + tower * 4 * 0.97 * 500) / (ARITHMETIC * card.flops)
    read = 100 * 2 * language + 8 * 5 * 100 * 550 * (2 * 36 * 256 * 2)
    expected = prefill + read / (BANDWIDTH * card.bandwidth) + 100 * DECODE_OVERHEAD
    assert time.generate(8, 512) == pytest.approx(expected, rel=0.01)
    forward = 2 * (language * 1000 + tower * 4 * 0.97 * 500) / (ARITHMETIC * card.flops)
    assert time.passes(3, has_gradient=False) == pytest.approx(3 * forward, rel=0.01)
    assert time.config.model.recomputes_activations
    assert time.passes(3) == pytest.approx(3 * 4 * forward, rel=0.01)


def test_a_step_has_all_passes_and_optimizer_steps(configure):
    """Old log-probs and the reference, and two optimizer steps of 8 groups in each of two PPO epochs."""
    config = configure("algorithm.kl={coef: 0.01}", "algorithm.old_log_probs=recompute", "actor.ppo_epochs=2")
    time = CardTime(config=config, sizes=sizes_of(config), card=CARDS["a100"], lengths=Lengths.assumed(config))
    expected = 2 * time.passes(16, has_gradient=False) + 4 * (time.passes(8) + time.optimizer())
    assert time.step(512).update == pytest.approx(expected)


@given(prompts=st.integers(1, 256), in_flight=st.integers(1, 512), more=st.integers(0, 512))
def test_more_sequences_at_a_time_never_slow_generation(prompts, in_flight, more):
    """And no generation is shorter than its longest response, or than a decode step for each token of a place."""
    seconds, faster = (TIME.generate(prompts, number) for number in (in_flight, in_flight + more))
    assert faster <= seconds
    assert seconds >= DECODE_OVERHEAD * max(400, prompts * 5 * 300 / in_flight)


TIME = card_time("h100", Lengths(prompt=100, response=300, longest=400))


@pytest.mark.parametrize("override", ["model.lora={rank: 8}", "model.freeze_vision_tower=true"])
def test_frozen_weights_cost_no_gradient(override):
    assert card_time("h100", of_length(128), override).passes(1) < card_time("h100", of_length(128)).passes(1)


def test_shared_work_takes_less_time_and_exchanges_take_more():
    lengths = of_length(400)
    one, eight = (card_time("h100", lengths, f"cluster.devices={number}") for number in (1, 8))
    assert eight.step(512).generate < one.step(512).generate and eight.step(512).update < one.step(512).update
    assert eight.step(512).sync > one.step(512).sync, "the weights are gathered"
    replicas = card_time("h100", lengths, "cluster={devices: 8, sharding: none}")
    assert replicas.optimizer() > one.optimizer() > eight.optimizer()
    together = card_time("h100", lengths, "cluster={devices: 2, sequence_parallel_size: 2}")
    assert one.passes(4) / 2 < together.passes(4) < one.passes(4), "each computes all images"


def test_lengths_are_those_that_are_planned_else_half_of_the_longest(configure):
    assert Lengths.assumed(configure()) == Lengths(prompt=32, response=8, longest=16, source="half of the longest")
    planned = configure("planning={mean_prompt_length: 20, mean_response_length: 10}")
    assert Lengths.assumed(planned) == Lengths(prompt=20, response=10, longest=16, source="planning")
