"""A baseline reproduces its published number or not, and became worse when an earlier good run says so, not by luck."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_core.config.published import PublishedConfig
from rl_core.evaluation.reproduction import (
    Outcome,
    Reproduction,
    baseline_status,
    drift_from,
    judge_reproduction,
    published_band,
    stored_status,
    tolerance,
)
from rl_core.evaluation.result import EvaluationResult, summarise
from tests.rl_core.evaluation.builders import make_items

PUBLISHED = PublishedConfig(
    protocol="geo3k-easyr1@1",
    accuracy=0.48,
    accuracy_before=0.37,
    items=601,
    train_rows=2101,
    steps_per_epoch=4,
    total_steps=60,
    source="a table",
    conditions="one sample",
)


def result(right: int, items: int = 601) -> EvaluationResult:
    return summarise(make_items("+" * right + "-" * (items - right)))


BASE = result(222)  # 0.369


@pytest.mark.parametrize(
    ("right", "outcome"),
    [(288, "reproduced"), (264, "reproduced"), (259, "below"), (320, "above"), (313, "reproduced")],
)
def test_a_run_within_the_published_numbers_own_error_reproduces_it(right: int, outcome: str) -> None:
    found = judge_reproduction(PUBLISHED, base=BASE, trained=result(right))
    assert found.outcome == outcome
    assert found.obstacles == ()
    assert found.band == pytest.approx((0.48 - 0.0449, 0.48 + 0.0449), abs=1e-4)
    assert found.ci95[0] < found.accuracy < found.ci95[1]


def test_the_tolerance_is_that_of_one_sample_an_item() -> None:
    """601 items have a standard error of 2.0 points at one half."""
    assert tolerance(0.5, items=601, rounding=0.0) == pytest.approx(1.96 * 0.0204, abs=1e-4)


def test_more_than_a_number_is_reproduced_by_anything_above_it() -> None:
    lower_bound = PUBLISHED.model_copy(update={"at_least": True, "accuracy_before": None})
    assert judge_reproduction(lower_bound, base=BASE, trained=result(601)).outcome == "reproduced"
    assert judge_reproduction(lower_bound, base=BASE, trained=result(100)).outcome == "below"


@pytest.mark.parametrize(
    ("published", "base", "trained", "reason"),
    [
        (PUBLISHED.model_copy(update={"accuracy": None}), BASE, result(288), "published no number"),
        (PUBLISHED, BASE, result(24, 50), "50 items were evaluated, the published number counts 601"),
        (PUBLISHED, result(81), result(288), "before training the accuracy is 0.135 here, 0.37 in the publication"),
    ],
)
def test_what_does_not_compare_says_why(published, base, trained, reason: str) -> None:
    found = judge_reproduction(published, base=base, trained=trained)
    assert found.outcome == "not comparable"
    assert any(reason in obstacle for obstacle in found.obstacles)


def test_obstacles_from_outside_count_and_without_a_base_number_none_is_asked_for() -> None:
    found = judge_reproduction(PUBLISHED, base=BASE, trained=result(288), obstacles=["other prompt"])
    assert (found.outcome, found.obstacles) == ("not comparable", ("other prompt",))
    assert found.to_json()["band"] == pytest.approx(found.band)
    silent = PUBLISHED.model_copy(update={"accuracy_before": None})
    assert judge_reproduction(silent, base=result(0), trained=result(288)).outcome == "reproduced"


@given(st.floats(0.0, 1.0), st.integers(1, 5000))
def test_a_band_holds_its_number_and_shrinks_with_the_items(accuracy: float, items: int) -> None:
    def band(count: int) -> tuple[float, float]:
        found = published_band(PUBLISHED.model_copy(update={"accuracy": accuracy, "items": count}))
        assert found is not None
        return found

    low, high = band(items)
    assert 0 <= low <= accuracy <= high <= 1
    more_low, more_high = band(4 * items)
    assert more_high - more_low <= high - low


FOUND = Reproduction(
    outcome="reproduced",
    accuracy=0.4,
    ci95=(0.36, 0.44),
    accuracy_before=0.24,
    published=0.38,
    band=(0.336, 0.424),
    obstacles=(),
)
GOOD = make_items("+" * 60 + "-" * 40)


def test_a_run_like_the_last_one_has_not_become_worse() -> None:
    drift = drift_from("last", GOOD, GOOD)
    assert (drift.comparison.difference, drift.comparison.p_value, drift.is_drop) == (0.0, 1.0, False)


def test_twenty_answers_lost_and_none_gained_are_a_drop() -> None:
    drift = drift_from("last", GOOD, make_items("+" * 40 + "-" * 60))
    assert drift.comparison.difference == pytest.approx(-0.2)
    assert drift.comparison.ci95[1] < 0 and drift.comparison.p_value < 0.001 and drift.is_drop
    assert drift.to_json().keys() == {"earlier", "n", "difference", "ci95", "p_value"}


def test_three_answers_lost_are_luck() -> None:
    assert not drift_from("last", GOOD, make_items("+" * 57 + "-" * 43)).is_drop


def test_an_improvement_is_no_drop_however_certain() -> None:
    drift = drift_from("last", GOOD, make_items("+" * 90 + "-" * 10))
    assert drift.comparison.p_value < 0.001 and not drift.is_drop


def test_other_items_are_refused() -> None:
    with pytest.raises(ValueError, match="the items differ"):
        drift_from("last", GOOD, GOOD[:50])


@given(st.text("+-", min_size=1, max_size=40).flatmap(lambda one: st.tuples(st.just(one), st.permutations(one))))
def test_the_same_share_of_right_answers_is_never_a_drop(pair: tuple[str, list[str]]) -> None:
    before, now = pair
    assert not drift_from("last", make_items(before), make_items("".join(now))).is_drop


DROP = drift_from("last", GOOD, make_items("+" * 40 + "-" * 60))
LUCK = drift_from("last", GOOD, make_items("+" * 57 + "-" * 43))


@pytest.mark.parametrize(
    ("outcome", "published", "drift", "status"),
    [
        ("reproduced", 0.38, None, "good"),
        ("above", 0.38, LUCK, "good"),
        ("reproduced", 0.38, DROP, "regressed"),
        ("below", 0.38, None, "regressed"),
        ("below", 0.38, LUCK, "regressed"),
        ("not comparable", 0.38, None, "not comparable"),
        ("not comparable", 0.38, DROP, "regressed"),
        ("not comparable", None, None, "good"),
        ("not comparable", None, LUCK, "good"),
        ("not comparable", None, DROP, "regressed"),
    ],
)
def test_what_a_run_says_of_its_baseline(outcome: Outcome, published: float | None, drift, status: str) -> None:
    found = replace(FOUND, outcome=outcome, published=published)
    assert baseline_status(found, [] if drift is None else [drift]) == status
    assert baseline_status(found, [LUCK, DROP]) == "regressed"


def test_the_status_is_read_from_a_record_of_an_earlier_version() -> None:
    former = {
        "name": "qwen2_5_vl_3b_geo3k_grpo",
        "run": "geo3k-0123456789ab",
        "standing": "good",
        "reasons": ["0.483 reproduces the published 0.48 (0.435 to 0.525)"],
        "failure": None,
        "reproduction": {"outcome": "reproduced", "accuracy": 0.483, "ci95": [0.443, 0.522], "accuracy_before": 0.37},
        "last_good": "geo3k-week-1",
        "drift": {"earlier": "geo3k-week-1", "n": 601, "difference": 0.0, "ci95": [-0.02, 0.02], "p_value": 1.0},
        "drift_from_first": None,
    }
    assert stored_status(former) == "good"
    assert stored_status({"status": "regressed"}) == "regressed"
    assert stored_status({}) is None
