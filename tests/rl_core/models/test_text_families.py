"""Packed trees of text models of many families, through the code of this project, against single sequences through
transformers alone, with its eager attention: the certificate of what is generic."""

import logging
from collections.abc import Iterator

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rl_core.cpu_switches import CPU_MODEL
from rl_core.models import loading
from rl_core.models.cpu import layers
from rl_core.models.loading import load_model
from rl_core.models.packing import TreeInput
from rl_core.models.policy import PolicyModel
from rl_core.models.tree_recurrence import carries_state
from tests.rl_core.models.builders import model_config
from tests.rl_core.models.text_families import (
    FAMILIES,
    TRAINED,
    WINDOW,
    gradients,
    packed_log_probs,
    policy_of,
    single_log_probs,
    tiny_config,
    tree,
    untouched,
    write_text_model,
)

WITH_RULES = ("gemma2", "gpt_oss", "llama4_text", "mistral")
"""A window with a soft cap, a window with sinks, chunks, and a window in every layer."""
SHORT = [tree(4 * WINDOW - 1, [9, 3 * WINDOW, 1]), tree(WINDOW - 3, [12, 4], seed=1)]
LONG = [*SHORT, tree(2 * WINDOW, [1, 40, 2], seed=2)]  # of more than 32 tokens: by the kernel


def assert_equal_passes(policy: PolicyModel, reference: torch.nn.Module, trees: list[TreeInput]) -> None:
    """Log-probs to 2e-5 nats, and the gradient of each weight to 2e-5 of its norm, or of 0.1 where it cancels out. The
    rule of a state adds logarithms of decays over up to 64 tokens, and loses a digit more."""
    share = 1e-4 if carries_state(policy.model) else 2e-5
    count = sum(len(response) for part in trees for response in part.responses)
    weight = torch.randn(count, generator=torch.Generator().manual_seed(0))
    found = {}
    for model, log_probs in (
        (policy.model, packed_log_probs(policy, trees)),
        (reference, single_log_probs(reference, trees)),
    ):
        (log_probs * weight).sum().backward()
        found[model] = log_probs.detach(), gradients(model)
    (packed, mine), (single, theirs) = found[policy.model], found[reference]
    torch.testing.assert_close(packed, single, rtol=0, atol=2e-5)
    used = {name for name, gradient in theirs.items() if gradient.abs().sum() > 0}
    assert used <= mine.keys()
    for name in used:
        assert (mine[name] - theirs[name]).norm() < share * max(0.1, float(theirs[name].norm())), name


@pytest.mark.parametrize("family", FAMILIES)
def test_packed_trees_are_single_sequences(family, tmp_path):
    folder = write_text_model(tmp_path, family)
    policy, reference = policy_of(folder), untouched(folder)
    for trees in (SHORT, LONG):
        assert_equal_passes(policy, reference, trees)


@pytest.mark.parametrize("family", [*TRAINED, "gpt_oss", "llama4_text", "deepseek_v3", "qwen3_5_text"])
def test_packed_trees_are_single_sequences_where_activations_are_recomputed(family, tmp_path):
    folder = write_text_model(tmp_path, family)
    assert_equal_passes(policy_of(folder, gradient_checkpointing=True), untouched(folder), SHORT)


@pytest.fixture(scope="module", params=["products", "kernel", "sdpa"])
def form(request) -> Iterator[str]:
    """Each form of tree attention that a CPU has, whatever the lengths."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(layers, "is_short", lambda _layout: request.param == "products")
        patch.setenv(CPU_MODEL, "0" if request.param == "sdpa" else "1")
        yield request.param


@pytest.fixture(scope="module", params=WITH_RULES)
def pair(request, form, tmp_path_factory) -> tuple[PolicyModel, torch.nn.Module]:
    folder = write_text_model(tmp_path_factory.mktemp(request.param), request.param)
    return policy_of(folder), untouched(folder)


lengths = st.tuples(
    st.integers(1, 3 * WINDOW), st.lists(st.integers(1, 2 * WINDOW + 1), min_size=1, max_size=3), st.integers(0, 9)
)


@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(drawn=st.lists(lengths, min_size=1, max_size=3))
def test_windows_chunks_caps_and_sinks_hold_for_trees_of_any_lengths(pair, drawn):
    policy, reference = pair
    assert_equal_passes(policy, reference, [tree(prompt, own, seed=seed) for prompt, own, seed in drawn])


@pytest.mark.parametrize("family", ["mistral", "llama4_text"])
@pytest.mark.parametrize("trees", [SHORT, LONG], ids=["short", "long"])
def test_a_window_as_long_as_the_longest_sequence_is_none_to_the_bit(family, trees, tmp_path):
    longest = max(len(part.prompt.token_ids) + max(map(len, part.responses)) - 1 for part in trees)
    kinds = {"mistral": "sliding_window", "llama4_text": "attention_chunk_size"}
    found = []
    for size in (longest, 500):
        policy = policy_of(write_text_model(tmp_path / str(size), family, **{kinds[family]: size}))
        log_probs = packed_log_probs(policy, trees)
        log_probs.sum().backward()
        found.append([log_probs.detach(), *gradients(policy.model).values()])
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))
    shorter = policy_of(write_text_model(tmp_path / "shorter", family, **{kinds[family]: longest - 1}))
    assert not torch.equal(packed_log_probs(shorter, trees), found[0][0])


def noise_fields(family: str) -> dict[str, float]:
    """Every field of a family's config for noise in training."""
    names = [name for name in vars(tiny_config(family)) if "drop" in name or "jitter" in name]
    return {name: 0.3 for name in names if name != "classifier_dropout"}


@pytest.mark.parametrize("family", FAMILIES)
def test_two_passes_in_training_mode_are_equal_to_the_bit(family, tmp_path):
    """With activation checkpointing, for which the model is in training mode."""
    folder = write_text_model(tmp_path, family, **noise_fields(family))
    policy = policy_of(folder, gradient_checkpointing=True)
    assert policy.model.training
    with torch.no_grad():
        first, second = packed_log_probs(policy, SHORT), packed_log_probs(policy, SHORT)
    assert torch.equal(first, second)


def test_noise_of_a_config_is_logged_once(tmp_path, caplog):
    folder = write_text_model(tmp_path, "seed_oss", attention_dropout=0.1, residual_dropout=0.2)
    loading._log_noise.cache_clear()
    with caplog.at_level(logging.INFO, logger=loading.__name__):
        models = [load_model(folder, model_config(folder)) for _ in range(2)]
    assert [model.config.attention_dropout + model.config.residual_dropout for model in models] == [0.0, 0.0]
    (message,) = caplog.messages
    assert "attention_dropout=0.1" in message and "residual_dropout=0.2" in message
