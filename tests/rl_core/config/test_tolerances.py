"""The bounds of the agreement check follow the number format where the config names none."""

from pathlib import Path

import pytest

from rl_core.config.loading import load_config
from rl_core.config.tolerances import agreement_bounds, merge_tolerance, resume_tolerance

QUICKSTART = Path(__file__).parents[3] / "configs" / "quickstart.yaml"
UNSET = ["rollout.max_log_prob_gap=null", "rollout.max_mean_log_prob_gap=null"]


@pytest.mark.parametrize(("dtype", "largest", "mean"), [("float32", 1e-3, 1e-4), ("bfloat16", 5.0, 0.1)])
def test_a_bound_that_is_not_set_is_the_number_formats(dtype, largest, mean):
    found = agreement_bounds(load_config(QUICKSTART, [f"model.dtype={dtype}", *UNSET]))
    assert (found.percentile, found.mean, found.correlation) == (largest, mean, 0.9)


def test_each_bound_can_be_set_by_itself():
    largest = agreement_bounds(load_config(QUICKSTART, ["model.dtype=bfloat16", *UNSET, "rollout.max_log_prob_gap=2"]))
    mean = agreement_bounds(load_config(QUICKSTART, [*UNSET, "rollout.max_mean_log_prob_gap=0.01"]))
    correlation = agreement_bounds(load_config(QUICKSTART, [*UNSET, "rollout.min_log_prob_correlation=0.99"]))
    assert (correlation.percentile, correlation.correlation) == (1e-3, 0.99)
    assert (largest.percentile, largest.mean) == (2.0, 0.1)
    assert (mean.percentile, mean.mean) == (1e-3, 0.01)


def test_a_probe_is_bound_in_the_mean_too_and_more_tightly_where_the_trainer_repeats_itself():
    config = load_config(QUICKSTART, ["merge.probe_tolerance=1"])
    merged, resumed = merge_tolerance(config), resume_tolerance(config, same_place=True)
    assert (merged.largest, merged.mean) == (1.0, 0.1)
    assert (resumed.largest, resumed.mean) == pytest.approx((0.1, 0.01))
    assert resume_tolerance(config, same_place=False) == merged
