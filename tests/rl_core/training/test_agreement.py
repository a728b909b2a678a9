import math
from dataclasses import replace

import numpy as np
import pytest

from rl_core.training.agreement import AgreementError, AgreementMeter
from tests.rl_core.builders import make_train_group


def meter_with(trainer: list[float]) -> AgreementMeter:
    meter = AgreementMeter(policy_version=0)
    meter.add(make_train_group(lengths=(3, 1)).samples, np.array(trainer, dtype=np.float32))
    return meter


def test_equal_log_probs_have_no_gap() -> None:
    meter = meter_with([-0.5, -0.5, -0.5, -0.5])
    meter.check(largest=1e-9, mean=1e-9)
    assert meter.max_gap == 0.0


def test_the_error_names_the_worst_token() -> None:
    meter = meter_with([-0.5, -0.5, -0.4, -0.8])
    with pytest.raises(AgreementError, match="prompt p0, sample 1, token 0"):
        meter.check(largest=0.2, mean=1.0)
    assert meter.mean_gap == pytest.approx(0.1, abs=1e-6)


def test_a_nan_is_the_largest_gap() -> None:
    meter = meter_with([-0.5, math.nan, -0.5, -0.5])
    with pytest.raises(AgreementError, match="token 1"):
        meter.check(largest=1e9, mean=1e9)


def test_what_other_weights_have_drawn_is_left_out() -> None:
    group = make_train_group(lengths=(2,))
    rollout = replace(group.samples[0].rollout, policy_version=1)
    stale, fresh = group.samples[0], replace(group.samples[0], rollout=rollout)
    meter = AgreementMeter(policy_version=1)
    meter.add([stale], np.array([-9.0, math.nan], dtype=np.float32))
    assert meter.metrics() == {}
    meter.check(largest=1e-9, mean=1e-9)
    meter.add([stale, fresh], np.array([-9.0, -9.0, -0.5, -0.25], dtype=np.float32))
    assert meter.metrics() == {"agreement/log_prob_gap_max": 0.25, "agreement/log_prob_gap_mean": 0.125}
    with pytest.raises(AgreementError, match="sample 0, token 1"):
        meter.check(largest=0.2, mean=1.0)


def test_one_token_far_off_is_rounding_and_all_of_them_a_little_are_not() -> None:
    """What bfloat16 does to a rare token, and what another temperature does to all."""
    meter_with([-0.5, -2.5, -0.5, -0.5]).check(largest=5.0, mean=0.6)
    with pytest.raises(AgreementError, match=r"mean 0.7\) .* above rollout.max_mean_log_prob_gap = 0.6\. Equal"):
        meter_with([-1.2, -1.2, -1.2, -1.2]).check(largest=5.0, mean=0.6)
