import math
import random
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from rl_core.evaluation.statistics import (
    PairedCounts,
    bootstrap_interval,
    clustered_wilson_interval,
    holm,
    mcnemar,
    mean_interval,
    paired_difference_interval,
    sign_flip_p_value,
    welch_test,
    wilson_interval,
)

counts = st.integers(1, 2000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n)))


@given(counts)
def test_wilson_equals_scipy(count):
    successes, n = count
    expected = stats.binomtest(successes, n).proportion_ci(0.95, method="wilson")
    assert wilson_interval(successes, n) == pytest.approx(expected, abs=1e-9)


@given(st.integers(1, 8).flatmap(lambda k: st.tuples(st.just(k), st.lists(st.integers(0, k), min_size=1))))
def test_the_clustered_interval_lies_between_those_of_all_answers_and_of_the_items(answers):
    samples, right = answers
    n, total = len(right), sum(right)
    low, high = clustered_wilson_interval([r / samples for r in right], samples_per_item=samples)
    tight_low, tight_high = wilson_interval(total, n * samples)
    wide_low, wide_high = wilson_interval(total / samples, n)
    assert wide_low - 1e-9 <= low <= tight_low + 1e-9
    assert tight_high - 1e-9 <= high <= wide_high + 1e-9


def test_the_clustered_interval_covers_the_truth_about_as_often_as_it_says():
    """100 items whose chance of a right answer is 0.1 or 0.9, four answers each: the mean's truth is 0.5. The interval
    of 400 independent answers, the control, covers it far too seldom."""
    draw = random.Random(7)
    clustered = naive = 0
    for _ in range(1000):
        right = [
            sum(draw.random() < chance for _ in range(4)) for chance in (draw.choice((0.1, 0.9)) for _ in range(100))
        ]
        low, high = clustered_wilson_interval([r / 4 for r in right], samples_per_item=4)
        clustered += low <= 0.5 <= high
        low, high = wilson_interval(sum(right), 400)
        naive += low <= 0.5 <= high
    assert 930 <= clustered <= 970
    assert naive < 850


def test_mcnemar_by_hand_and_for_many_items():
    assert mcnemar(0, 5) == float(Fraction(2, 32))
    assert mcnemar(1, 9) == float(Fraction(2 * 11, 1024))
    assert mcnemar(0, 0) == mcnemar(7, 7) == 1.0
    assert mcnemar(2000, 2000) == 1.0
    assert mcnemar(0, 1500) == 0.0 or math.log2(mcnemar(0, 1500)) == -1499


@pytest.mark.parametrize(
    ("both", "only_first", "only_second", "neither", "interval"),
    [(36, 12, 2, 0, (0.0569, 0.3404)), (20, 12, 2, 16, (0.0562, 0.3292)), (20, 14, 0, 16, (0.1441, 0.3966))],
)
def test_the_paired_interval_gives_the_published_examples(both, only_first, only_second, neither, interval):
    """Newcombe, Statistics in Medicine 17, 1998, pages 2635-2650, method 10, which takes first minus second."""
    counts = PairedCounts(both=both, only_first=only_first, only_second=only_second, neither=neither)
    low, high = paired_difference_interval(counts)
    assert (-high, -low) == pytest.approx(interval, abs=5e-5)


def test_welch_against_a_worked_example():
    """Two samples, t and degrees of freedom by hand: means 3 and 6, variances 1 and 4, n = 3 each: t = 3 / sqrt(5/3),
    df = (5/3)^2 / ((1/3)^2/2 + (4/3)^2/2) = 2.941; the p-value is that of Student's distribution with it."""
    found = welch_test([2, 3, 4], [4, 6, 8])
    t, df = 3 / math.sqrt(5 / 3), (5 / 3) ** 2 / ((1 / 3) ** 2 / 2 + (4 / 3) ** 2 / 2)
    assert found is not None
    assert found.p_value == pytest.approx(2 * stats.t.sf(t, df), rel=1e-6)
    assert sum(found.ci95) / 2 == pytest.approx(3.0)


@pytest.mark.parametrize(("first", "second"), [([0.5], [0.6, 0.7]), ([0.5, 0.6], [0.7]), ([0.5, 0.5], [0.7, 0.7])])
def test_without_repetition_or_variance_seeds_say_nothing(first, second):
    assert welch_test(first, second) is None


def test_the_interval_of_a_mean_is_that_of_students_own_example():
    """Hours of sleep gained by one drug over the other (Biometrika 6, 1908)."""
    hours = [1.2, 2.4, 1.3, 1.3, 0.0, 1.0, 1.8, 0.8, 4.6, 1.4]
    assert mean_interval(hours) == pytest.approx((0.7001142, 2.4598858))
    assert mean_interval([0.9]) is None


def test_holm_by_hand():
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.5, 0.9]) == [1.0, 1.0]
    assert holm([]) == []


shares = st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0]), min_size=1, max_size=60)


@given(shares, st.randoms(use_true_random=False))
def test_the_interval_does_not_depend_on_the_order_and_lies_within_the_values(values, shuffle):
    low, high = interval = bootstrap_interval(values, resamples=500)
    shuffled = list(values)
    shuffle.shuffle(shuffled)
    assert bootstrap_interval(shuffled, resamples=500) == interval
    assert min(values) - 1e-12 <= low <= high <= max(values) + 1e-12


def test_with_many_items_the_interval_is_wilsons():
    values = [1.0] * 300 + [0.0] * 300
    assert bootstrap_interval(values) == pytest.approx(wilson_interval(300, 600), abs=0.004)


@pytest.mark.parametrize(("lost", "gained"), [(0, 5), (3, 12), (20, 22), (40, 15)])
def test_flipped_signs_of_single_answers_are_mcnemars_test(lost, gained):
    differences = [-1.0] * lost + [1.0] * gained + [0.0] * 30
    assert sign_flip_p_value(differences, resamples=40_000) == pytest.approx(mcnemar(lost, gained), abs=0.01)
