"""The step at which `trainer.stop_at` ends a training follows from the recorded metrics alone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_core.config.training import VALIDATION_METRICS, StopAt
from rl_core.loop.target import Target
from rl_core.loop.validation import Validation
from tests.rl_core.evaluation.builders import make_items


@pytest.mark.parametrize(
    ("bounds", "number"), [({"value": 1}, 0), ({"at_most": 1}, 0), ({}, 1), ({"value": 1, "at_most": 2}, 1)]
)
def test_a_target_has_one_bound(bounds, number):
    assert len(list(StopAt(metric="actor/entropy", **bounds).problems())) == number


@given(measured=st.lists(st.floats(-2, 2), max_size=6), bound=st.floats(-2, 2))
def test_a_metric_that_falls_ends_the_training_where_its_mirror_image_would(measured, bound):
    falling, rising = (
        Target(
            StopAt(metric="actor/entropy", **bounds),
            [{"step": n, "actor/entropy": sign * one} for n, one in enumerate(measured, 1)],
        )
        for sign, bounds in ((1, {"at_most": bound}), (-1, {"value": -bound}))
    )
    assert falling.reached_at == rising.reached_at


@given(
    measured=st.lists(st.none() | st.sampled_from([0.0, 0.5, 1.0, float("nan")]), max_size=12),
    patience=st.integers(1, 3),
    cut=st.integers(0, 12),
)
def test_the_value_has_to_be_reached_by_so_many_measurements_in_a_row(measured, patience, cut):
    """Where the recorded steps have passed it, before it was set, their last one ends the training."""
    lines = [{"step": step} | ({} if value is None else {"val/accuracy": value}) for step, value in enumerate(measured)]
    seen = [line for line in lines[1:] if "val/accuracy" in line]
    windows = (seen[end - patience : end] for end in range(patience, len(seen) + 1))
    expected = next((w[-1]["step"] for w in windows if all(line["val/accuracy"] >= 0.5 for line in w)), None)
    target = Target(StopAt(metric="val/accuracy", value=0.5, patience=patience), lines[:cut])
    for line in lines[cut:]:
        if target.reached_at is None:
            target.see(line["step"], line)
    done = lines[:cut][-1]["step"] if lines[:cut] else 0
    assert target.reached_at == (expected if expected is None else max(expected, done))


def test_a_name_that_no_metric_has_is_reported_after_the_first_step(caplog):
    target = Target(StopAt(metric="actor/entropi", value=1), [])
    assert target.see(1, {"actor/entropy": 2.0, "reward/overall": 2.0}) is None
    assert "step 1 has no actor/entropi; did you mean `actor/entropy`?" in caplog.text


def test_a_validation_measures_what_a_plan_expects():
    assert tuple(Validation(make_items("+-?")).metrics) == VALIDATION_METRICS


def test_the_accuracy_of_one_of_several_validation_sets_may_be_the_target():
    assert not list(StopAt(metric="val/charts/accuracy", value=1.0).problems())
    assert list(StopAt(metric="val/charts/reward", value=1.0).problems())
