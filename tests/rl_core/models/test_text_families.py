"""Packed trees of text models of many families, through the code of this project, against single sequences through
transformers alone: the certificate of the generic path."""

import logging

import pytest
import torch

from rl_core.models import loading
from rl_core.models.loading import load_model
from tests.rl_core.models.builders import model_config
from tests.rl_core.models.text_families import packed_log_probs, policy_of, tiny_config, tree, write_text_model

TREES = [tree(23, [9, 30, 1]), tree(7, [12, 4], seed=1)]


def noise_fields(family: str) -> dict[str, float]:
    """Every field of a family's config for noise in training."""
    names = [name for name in vars(tiny_config(family)) if "drop" in name or "jitter" in name]
    return {name: 0.3 for name in names if name != "classifier_dropout"}


@pytest.mark.parametrize("family", ["llama", "qwen3", "olmoe", "granite", "seed_oss", "smollm3"])
def test_two_passes_in_training_mode_are_equal_to_the_bit(family, tmp_path):
    """With activation checkpointing, for which the model is in training mode."""
    folder = write_text_model(tmp_path, family, **noise_fields(family))
    policy = policy_of(folder, gradient_checkpointing=True)
    assert policy.model.training
    with torch.no_grad():
        first, second = packed_log_probs(policy, TREES), packed_log_probs(policy, TREES)
    assert torch.equal(first, second)


def test_noise_of_a_config_is_said_once(tmp_path, caplog):
    folder = write_text_model(tmp_path, "seed_oss", attention_dropout=0.1, residual_dropout=0.2)
    loading._say_noise.cache_clear()
    with caplog.at_level(logging.INFO, logger=loading.__name__):
        models = [load_model(folder, model_config(folder)) for _ in range(2)]
    assert [model.config.attention_dropout + model.config.residual_dropout for model in models] == [0.0, 0.0]
    (message,) = caplog.messages
    assert "attention_dropout=0.1" in message and "residual_dropout=0.2" in message
