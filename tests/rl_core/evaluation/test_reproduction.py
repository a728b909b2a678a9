"""A baseline reproduces its published number or not, and became worse when earlier good runs say so, not by luck. What
several seeds leave open is called open."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from rl_core.config.stages import PublishedConfig
from rl_core.evaluation.comparison import GroupAccuracy, Shares, group_accuracy
from rl_core.evaluation.reproduction import Drift, Reproduction, baseline_status, drift_from, judge_reproduction
from rl_core.evaluation.result import item_shares
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


def model(right: int, items: int = 601) -> Shares:
    return item_shares(make_items("+" * right + "-" * (items - right)))


def judge(*right: int, published: PublishedConfig = PUBLISHED, before: float = 222 / 601, **named) -> Reproduction:
    """What runs say that have so many of 601 answers right, with the seeds 1, 2, ..."""
    trained = group_accuracy([model(count) for count in right])
    return judge_reproduction(published, seeds=range(1, 1 + len(right)), before=before, trained=trained, **named)


@pytest.mark.parametrize(
    ("right", "outcome"),
    [(288, "reproduced"), (264, "reproduced"), (259, "below"), (320, "above"), (313, "reproduced")],
)
def test_a_run_within_the_published_numbers_own_error_reproduces_it(right, outcome):
    found = judge(right)
    assert found.outcome == outcome
    assert found.obstacles == ()
    assert found.band == pytest.approx((0.48 - 0.0449, 0.48 + 0.0449), abs=1e-4)
    assert found.trained.ci95[0] < found.trained.mean < found.trained.ci95[1]


@pytest.mark.parametrize(
    ("right", "outcome", "status"),
    [
        ((288, 290, 286), "reproduced", "good"),
        ((240, 290, 300), "reproduced", "good"),  # the mean decides, however far the seeds are apart
        ((240, 242, 244), "below", "regressed"),
        ((230, 250, 275), "undecided", "undecided"),
        ((200, 300), "undecided", "undecided"),
        ((340, 342, 344), "above", "good"),
        ((310, 330, 350), "undecided", "good"),  # it reproduces the number or is above it, and both are good
        ((250, 250, 250), "below", "regressed"),  # seeds without spread have an interval without width
    ],
)
def test_outside_the_band_the_whole_interval_over_seeds_decides(right, outcome, status):
    found = judge(*right)
    assert (found.outcome, baseline_status(found, [])) == (outcome, status)


def test_more_than_a_number_is_reproduced_by_anything_above_it():
    lower_bound = PUBLISHED.model_copy(update={"at_least": True, "accuracy_before": None})
    assert judge(601, published=lower_bound).outcome == "reproduced"
    assert judge(310, 350, published=lower_bound).outcome == "reproduced"
    assert judge(100, published=lower_bound).outcome == "below"


@pytest.mark.parametrize(
    ("published", "before", "trained", "reason"),
    [
        (PUBLISHED.model_copy(update={"accuracy": None}), 0.37, model(288), "published no number"),
        (PUBLISHED, 0.37, model(24, 50), "50 items were evaluated, the published number counts 601"),
        (PUBLISHED, 0.135, model(288), "before training the accuracy is 0.135 here, 0.37 in the publication"),
    ],
)
def test_a_run_that_is_not_comparable_names_the_reason(published, before, trained, reason):
    found = judge_reproduction(published, seeds=[1], before=before, trained=group_accuracy([trained]))
    assert found.outcome == "not comparable"
    assert any(reason in obstacle for obstacle in found.obstacles)


def test_obstacles_from_outside_count_and_without_a_base_number_none_is_asked_for():
    found = judge(288, obstacles=["other prompt"])
    assert (found.outcome, found.obstacles) == ("not comparable", ("other prompt",))
    assert found.to_json()["band"] == pytest.approx(found.band)
    silent = PUBLISHED.model_copy(update={"accuracy_before": None})
    assert judge(288, published=silent, before=0.0).outcome == "reproduced"


FOUND = Reproduction(
    outcome="reproduced",
    seeds=(1,),
    trained=GroupAccuracy(by_seed=(0.4,), n=601, mean=0.4, ci95=(0.36, 0.44)),
    accuracy_before=0.24,
    published=0.38,
    band=(0.336, 0.424),
    obstacles=(),
)
GOOD = "+" * 60 + "-" * 40


def drift_of(before: Sequence[str], now: Sequence[str]) -> Drift:
    """One model a text, with a sign for each item."""
    models = [item_shares(make_items(signs)) for signs in now]
    return drift_from({f"run-{seed}": item_shares(make_items(signs)) for seed, signs in enumerate(before)}, models)


def test_twenty_answers_lost_and_none_gained_are_a_drop():
    drift = drift_of([GOOD], ["+" * 40 + "-" * 60])
    assert drift.comparison.difference == pytest.approx(-0.2)
    assert drift.ci95[1] < 0 and drift.p_value < 0.001 and drift.is_drop
    assert drift.to_json() == {
        "earlier": ["run-0"],
        "n": 100,
        "seeds": [1, 1],
        "difference": drift.comparison.difference,
        "over": "items",
        "ci95": list(drift.comparison.ci95),
        "p_value": drift.comparison.p_value,
    }


def test_an_improvement_is_no_drop_however_certain():
    drift = drift_of([GOOD], ["+" * 90 + "-" * 10])
    assert drift.p_value < 0.001 and not drift.is_drop


def signs(right: int) -> str:
    return "+" * right + "-" * (100 - right)


def test_seeds_decide_where_both_sides_have_several():
    """The items alone would call both a drop: their models differ without doubt."""
    luck = drift_of([signs(70), signs(50)], [signs(60), signs(30)])
    assert luck.comparison.p_value < 0.001 and not luck.is_drop
    assert (luck.p_value, luck.to_json()["over"]) == (luck.comparison.over_seeds.p_value, "seeds")
    assert luck.ci95 == luck.comparison.over_seeds.ci95 and luck.ci95[0] < -0.15 < luck.ci95[1]
    assert drift_of([signs(70), signs(71), signs(72)], [signs(60), signs(61), signs(62)]).is_drop


@pytest.mark.parametrize(("before", "now"), [([60], [40, 41, 42]), ([60, 61], [40]), ([60, 60], [40, 40])])
def test_items_decide_where_a_side_has_one_seed_or_no_seed_differs(before, now):
    drift = drift_of([signs(right) for right in before], [signs(right) for right in now])
    assert (drift.p_value, drift.to_json()["over"]) == (drift.comparison.p_value, "items")
    assert drift.is_drop


DROP = drift_of([GOOD], ["+" * 40 + "-" * 60])
LUCK = drift_of([GOOD], ["+" * 57 + "-" * 43])


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
        ("undecided", 0.38, DROP, "regressed"),
    ],
)
def test_the_status_of_a_baseline_follows_from_its_runs(outcome, published, drift, status):
    found = replace(FOUND, outcome=outcome, published=published)
    assert baseline_status(found, [] if drift is None else [drift]) == status
    assert baseline_status(found, [LUCK, DROP]) == "regressed"
