"""The sections of losses, estimators and filters within a configuration."""

from pathlib import Path

import pytest

from rl_core.config.loading import ConfigError, load_config


@pytest.fixture
def clipped(small) -> Path:
    """The small configuration with an option of a loss."""
    small.write_text(small.read_text() + "algorithm: {loss: {type: ppo, clip_ratio_high: 0.28}}\n")
    return small


@pytest.mark.parametrize(
    ("overrides", "refused"),
    [
        (["algorithm.loss={type: sapo, clip_ratio_low: 0.2}"], "algorithm.loss.clip_ratio_low: unknown key"),
        (["algorithm.advantage={type: rloo, gamma: 0.9}"], "algorithm.advantage.gamma: unknown key"),
        (["algorithm.advantage={type: reinforce_plus_plus, lam: 0.9}"], "algorithm.advantage.lam: unknown key"),
        (["algorithm.loss.type=grpo"], "expected tags: 'cispo'"),
    ],
)
def test_an_option_of_another_kind_cannot_be_written(clipped, overrides, refused):
    with pytest.raises(ConfigError) as error:
        load_config(clipped, overrides)
    assert refused in str(error.value)


def test_another_type_leaves_nothing_of_a_section_in_whatever_order(clipped):
    overrides = ["algorithm.loss.type=gspo", "algorithm.loss.clip_ratio_low=0.1"]
    for order in (overrides, overrides[::-1]):
        loss = load_config(clipped, order).algorithm.loss
        assert (loss.type, loss.clip_ratio_low, loss.clip_ratio_high) == ("gspo", 0.1, 0.3)
    same = load_config(clipped, ["algorithm.loss.type=ppo"]).algorithm.loss
    assert same.clip_ratio_high == 0.28


def test_the_type_of_a_section_without_one_is_the_default(clipped, tmp_path):
    child = tmp_path / "child.yaml"
    child.write_text("extends: small.yaml\nalgorithm: {loss: {clip_ratio_low: 0.1}, online_filtering: {}}\n")
    algorithm = load_config(child).algorithm
    assert (algorithm.loss.clip_ratio_low, algorithm.loss.clip_ratio_high) == (0.1, 0.28)
    assert (algorithm.loss.type, algorithm.advantage.type) == ("ppo", "grpo")
    assert algorithm.online_filtering.type == "bounds"
    grandchild = tmp_path / "grandchild.yaml"
    grandchild.write_text("extends: child.yaml\nalgorithm: {online_filtering: {type: bounds, filter_low: 0.5}}\n")
    assert load_config(grandchild).algorithm.online_filtering.filter_low == 0.5
