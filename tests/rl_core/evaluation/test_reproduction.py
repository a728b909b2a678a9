import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_core.config.published import PublishedConfig
from rl_core.evaluation.reproduction import judge_reproduction, published_band, tolerance
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
