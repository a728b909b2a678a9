"""A baseline became worse when its last good run says so, or the publication, and not by luck."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_core.evaluation.regression import drift_from, standing_of
from rl_core.evaluation.reproduction import Outcome, Reproduction
from tests.rl_core.evaluation.builders import make_items

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
    ("outcome", "published", "drift", "standing"),
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
def test_what_a_run_says_of_its_baseline(outcome: Outcome, published: float | None, drift, standing: str) -> None:
    found = replace(FOUND, outcome=outcome, published=published)
    assert standing_of(found, [] if drift is None else [drift]) == standing
    assert standing_of(found, [LUCK, DROP]) == "regressed"
