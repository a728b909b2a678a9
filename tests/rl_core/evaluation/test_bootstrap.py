import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_core.evaluation.bootstrap import bootstrap_interval, sign_flip_p_value
from rl_core.evaluation.statistics import mcnemar, wilson_interval

shares = st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0]), min_size=1, max_size=60)


@given(shares, st.randoms(use_true_random=False))
def test_the_interval_does_not_depend_on_the_order_and_lies_within_the_values(values: list, shuffle) -> None:
    low, high = interval = bootstrap_interval(values, resamples=500)
    shuffled = list(values)
    shuffle.shuffle(shuffled)
    assert bootstrap_interval(shuffled, resamples=500) == interval
    assert min(values) - 1e-12 <= low <= high <= max(values) + 1e-12


def test_with_many_items_it_is_wilsons() -> None:
    values = [1.0] * 300 + [0.0] * 300
    assert bootstrap_interval(values) == pytest.approx(wilson_interval(300, 600), abs=0.004)


def test_it_covers_the_truth_about_as_often_as_it_says() -> None:
    """150 items answered four times; an item's chance is 0.1 or 0.9, the mean's truth 0.5. The control, which takes the
    600 answers for independent, covers it far too seldom."""
    draw = random.Random(3)
    covered = naive = 0
    for _ in range(400):
        items = [[draw.random() < p for _ in range(4)] for p in (draw.choice((0.1, 0.9)) for _ in range(150))]
        low, high = bootstrap_interval([sum(item) / 4 for item in items], resamples=1000)
        covered += low <= 0.5 <= high
        low, high = bootstrap_interval([float(right) for item in items for right in item], resamples=1000)
        naive += low <= 0.5 <= high
    assert 365 <= covered <= 396
    assert naive < 340


@pytest.mark.parametrize(("lost", "gained"), [(0, 5), (3, 12), (20, 22), (40, 15)])
def test_flipped_signs_of_single_answers_are_mcnemars_test(lost: int, gained: int) -> None:
    differences = [-1.0] * lost + [1.0] * gained + [0.0] * 30
    assert sign_flip_p_value(differences, resamples=40_000) == pytest.approx(mcnemar(lost, gained), abs=0.01)


@given(shares)
def test_a_p_value_is_one_where_nothing_differs_and_the_same_for_the_opposite(values: list) -> None:
    assert sign_flip_p_value([0.0] * len(values), resamples=200) == 1.0
    assert sign_flip_p_value(values, resamples=200) == sign_flip_p_value([-v for v in values], resamples=200)


def test_no_items_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one item"):
        bootstrap_interval([])
    with pytest.raises(ValueError, match="at least one item"):
        sign_flip_p_value([])
