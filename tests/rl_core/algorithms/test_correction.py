import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_core.algorithms.correction import (
    effective_sample_size,
    importance_ratios,
    masked_weights,
    off_policy_metrics,
    truncated_weights,
)

LOG_RATIOS = st.lists(st.floats(-3, 3), min_size=1, max_size=8).map(np.array)


@given(LOG_RATIOS)
def test_a_sequences_ratio_is_the_product_of_its_tokens(log_ratio):
    by_token = importance_ratios(log_ratio, "token")
    assert importance_ratios(log_ratio, "sequence") == pytest.approx(np.full(log_ratio.size, by_token.prod()))


def test_truncation_bounds_from_above_and_masking_leaves_out():
    ratios = np.array([0.1, 0.5, 1.0, 5.0, 7.0])
    assert truncated_weights(ratios, clip_max=2.0).tolist() == [0.1, 0.5, 1.0, 2.0, 2.0]
    assert masked_weights(ratios, clip_min=0.5, clip_max=5.0).tolist() == [0.0, 0.5, 1.0, 5.0, 0.0]


@given(LOG_RATIOS)
def test_the_effective_sample_size_is_a_share_and_whole_for_equal_weights(log_ratio):
    weights = np.exp(log_ratio)
    assert 0.0 < effective_sample_size(weights) <= 1.0 + 1e-12
    assert effective_sample_size(np.full_like(weights, 0.3)) == pytest.approx(1.0)


def test_a_sample_with_nearly_all_of_the_weight_counts_as_one():
    assert effective_sample_size(np.array([1e9, 1.0, 1.0, 1.0])) == pytest.approx(0.25)
    assert effective_sample_size(np.zeros(3)) == 0.0


def test_the_kl_is_that_of_the_engine_to_the_trainer():
    """Over the engine's distribution k3 is unbiased: with two tokens its expectation can be written out."""
    engine, trainer = np.array([0.8, 0.2]), np.array([0.6, 0.4])
    drawn = np.repeat([0, 1], [8000, 2000])
    log_ratio = np.log(trainer / engine)[drawn]
    metrics = off_policy_metrics([log_ratio], None)
    assert metrics["off_policy/kl"] == pytest.approx(float((engine * np.log(engine / trainer)).sum()))
    assert metrics["off_policy/ratio_mean"] == pytest.approx(1.0)
    assert "off_policy/ess" not in metrics
