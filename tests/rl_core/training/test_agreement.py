import math
from dataclasses import replace

import numpy as np
import pytest

from rl_core.config.tolerances import Tolerance
from rl_core.training.agreement import AgreementError, AgreementMeter, LogProbGap
from rl_core.types import TrainSample
from tests.rl_core.builders import make_train_group


def meter_with(trainer: list[float]) -> AgreementMeter:
    meter = AgreementMeter(policy_version=0, keeps_surplus=False)
    meter.add(make_train_group(lengths=(3, 1)).samples, np.array(trainer, dtype=np.float32))
    return meter


def sample_of(*, version: int) -> TrainSample:
    sample = make_train_group(lengths=(2,)).samples[0]
    return replace(sample, rollout=replace(sample.rollout, policy_version=version))


def test_equal_log_probs_have_no_gap() -> None:
    meter = meter_with([-0.5, -0.5, -0.5, -0.5])
    meter.check(Tolerance(largest=1e-9, mean=1e-9))
    assert meter.gap().largest == 0.0


def test_the_error_names_the_worst_token() -> None:
    meter = meter_with([-0.5, -0.5, -0.4, -0.8])
    with pytest.raises(AgreementError, match="prompt p0, sample 1, token 0"):
        meter.check(Tolerance(largest=0.2, mean=1.0))
    assert meter.gap().mean == pytest.approx(0.1, abs=1e-6)


def test_a_nan_is_the_largest_gap() -> None:
    meter = meter_with([-0.5, math.nan, -0.5, -0.5])
    with pytest.raises(AgreementError, match="token 1"):
        meter.check(Tolerance(largest=1e9, mean=1e9))


def test_what_other_weights_have_drawn_is_left_out() -> None:
    stale, fresh = sample_of(version=0), sample_of(version=1)
    meter = AgreementMeter(policy_version=1, keeps_surplus=True)
    meter.add([stale], np.array([-9.0, math.nan], dtype=np.float32))
    assert meter.gap().count == 0
    meter.check(Tolerance(largest=1e-9, mean=1e-9))
    meter.add([stale, fresh], np.array([-9.0, -9.0, -0.5, -0.25], dtype=np.float32))
    assert meter.gap() == LogProbGap(largest=0.25, total=0.25, count=2)
    with pytest.raises(AgreementError, match="sample 0, token 1"):
        meter.check(Tolerance(largest=0.2, mean=1.0))


def test_one_token_far_off_is_rounding_and_all_of_them_a_little_are_not() -> None:
    """What bfloat16 does to a rare token, and what another temperature does to all."""
    meter_with([-0.5, -2.5, -0.5, -0.5]).check(Tolerance(largest=5.0, mean=0.6))
    with pytest.raises(AgreementError, match=r"mean 0.7\) .* above rollout.max_mean_log_prob_gap = 0.6\. Equal"):
        meter_with([-1.2, -1.2, -1.2, -1.2]).check(Tolerance(largest=5.0, mean=0.6))


@pytest.mark.parametrize(("keeps_surplus", "drawn_with"), [(False, 1), (False, 3), (True, 3)])
def test_a_batch_of_which_nothing_can_be_compared_is_no_agreement(keeps_surplus: bool, drawn_with: int) -> None:
    """Wrong versions are when the check is needed; a kept group is one of earlier weights."""
    meter = AgreementMeter(policy_version=2, keeps_surplus=keeps_surplus)
    meter.add([sample_of(version=drawn_with)], np.array([-0.5, -0.5], dtype=np.float32))
    with pytest.raises(AgreementError, match=rf"no token .* of version 2, .* come from version\(s\) \[{drawn_with}\]"):
        meter.check(Tolerance(largest=9.0, mean=9.0))
