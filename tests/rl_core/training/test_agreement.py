import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from rl_core.config.tolerances import AGREEMENT, AgreementBounds
from rl_core.training.agreement import AgreementError, AgreementMeter, log_prob_gap
from rl_core.types import Rollout
from tests.rl_core.builders import make_train_group


def meter_with(trainer: Sequence[float]) -> AgreementMeter:
    meter = AgreementMeter(policy_version=0, keeps_surplus=False)
    meter.add(make_train_group(lengths=(3, 1)).rollouts, np.array(trainer, dtype=np.float32))
    return meter


def meter_of(generator: np.ndarray, trainer: np.ndarray) -> AgreementMeter:
    rollout = make_train_group(lengths=(len(generator),)).rollouts[0]
    meter = AgreementMeter(policy_version=0, keeps_surplus=False)
    meter.add([replace(rollout, log_probs=generator.astype(np.float32))], trainer.astype(np.float32))
    return meter


def bounds(*, percentile: float = 1e9, mean: float = 1e9, correlation: float = 0.0) -> AgreementBounds:
    return AgreementBounds(percentile=percentile, mean=mean, correlation=correlation)


def rollout_of(*, version: int) -> Rollout:
    return replace(make_train_group(lengths=(2,)).rollouts[0], policy_version=version)


def test_the_error_names_the_worst_token():
    meter = meter_with([-0.5, -0.5, -0.4, -0.8])
    with pytest.raises(AgreementError, match="prompt p0, sample 1, token 0"):
        meter.check(bounds(percentile=0.2))
    assert meter.gap().mean == pytest.approx(0.1, abs=1e-6)


def test_a_nan_is_the_largest_gap():
    meter = meter_with([-0.5, math.nan, -0.5, -0.5])
    with pytest.raises(AgreementError, match="token 1"):
        meter.check(bounds())


def test_rollouts_of_other_weights_are_left_out():
    stale, fresh = rollout_of(version=0), rollout_of(version=1)
    meter = AgreementMeter(policy_version=1, keeps_surplus=True)
    meter.add([stale], np.array([-9.0, math.nan], dtype=np.float32))
    assert meter.gap().count == 0
    meter.check(bounds(percentile=1e-9, mean=1e-9))
    meter.add([stale, fresh], np.array([-9.0, -9.0, -0.5, -0.25], dtype=np.float32))
    assert (meter.gap().count, meter.gap().largest, meter.gap().mean) == (2, 0.25, 0.125)
    with pytest.raises(AgreementError, match="sample 0, token 1"):
        meter.check(bounds(percentile=0.2))


def test_one_token_far_off_is_rounding_and_all_of_them_a_little_are_not():
    """What bfloat16 does to a rare token, and what another temperature does to all."""
    meter_with([-0.5, -2.5, -0.5, -0.5]).check(bounds(percentile=5.0, mean=0.6))
    with pytest.raises(AgreementError, match=r"mean 0.7\), .* beyond rollout.max_mean_log_prob_gap = 0.6\. Equal"):
        meter_with([-1.2, -1.2, -1.2, -1.2]).check(bounds(percentile=5.0, mean=0.6))


@pytest.mark.parametrize(("keeps_surplus", "drawn_with"), [(False, 1), (False, 3), (True, 3)])
def test_a_batch_of_which_nothing_can_be_compared_is_no_agreement(keeps_surplus, drawn_with):
    """Wrong versions are when the check is needed; a kept group is one of earlier weights."""
    meter = AgreementMeter(policy_version=2, keeps_surplus=keeps_surplus)
    meter.add([rollout_of(version=drawn_with)], np.array([-0.5, -0.5], dtype=np.float32))
    with pytest.raises(AgreementError, match=rf"no token .* of version 2, .* come from version\(s\) \[{drawn_with}\]"):
        meter.check(bounds())


def test_one_token_in_a_thousand_may_be_far_off_and_two_may_not():
    generator = np.zeros(2000, dtype=np.float32)
    one, two, three = generator.copy(), generator.copy(), generator.copy()
    one[7], two[[7, 8]], three[[7, 8, 9]] = -30.0, -30.0, -30.0
    assert [log_prob_gap(generator, trainer).percentile for trainer in (one, two, three)] == [0.0, 0.0, 30.0]
    assert log_prob_gap(generator[:999], one[:999]).percentile == 30.0, "of fewer tokens it is the largest"
    assert log_prob_gap(generator, one).largest == 30.0


def test_log_probs_of_other_weights_that_differ_little_do_not_correlate():
    """A policy that is sure of its tokens hides stale weights from the mean."""
    generator = np.random.default_rng(0)
    tokens = -generator.exponential(0.02, size=5000) - 4.5 * (generator.random(5000) < 0.007)
    meter = meter_of(tokens, tokens[generator.permutation(5000)])
    usual = AGREEMENT["bfloat16"]
    assert meter.gap().mean < usual.mean and meter.gap().percentile < usual.percentile
    with pytest.raises(AgreementError, match=r"beyond rollout.min_log_prob_correlation = 0.9 \(it is -?0\.0"):
        meter.check(usual)


def test_rounding_is_not_held_against_log_probs_that_hardly_vary():
    generator = np.random.default_rng(0)
    tokens = -6.0 + 0.05 * generator.standard_normal(5000)
    rounded = tokens + 0.03 * generator.standard_normal(5000)
    assert meter_of(tokens, rounded).gap().correlation < 0.9
    meter_of(tokens, rounded).check(AGREEMENT["bfloat16"])
    wide = 10.0 * tokens
    meter_of(wide, wide + rounded - tokens).check(AGREEMENT["bfloat16"])


def test_log_probs_that_do_not_vary_have_no_correlation():
    assert meter_with([-0.5, -0.5, -0.4, -0.8]).gap().correlation is None
