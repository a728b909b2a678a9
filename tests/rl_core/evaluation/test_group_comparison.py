"""Two groups of models: what items say of their difference, and what seeds say."""

import math
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_core.evaluation.bootstrap import bootstrap_interval
from rl_core.evaluation.group_comparison import (
    compare_groups,
    group_accuracy,
    holm,
    mean_shares,
    over_seeds,
)
from rl_core.evaluation.statistics import clustered_wilson_interval, mcnemar


def model(signs: str) -> dict[str, float]:
    """One item a sign: "+" is right, "-" is wrong."""
    return {f"p{place}": float(sign == "+") for place, sign in enumerate(signs)}


groups = st.integers(1, 12).flatmap(
    lambda n: st.tuples(*[st.lists(st.text("+-", min_size=n, max_size=n).map(model), min_size=1, max_size=4)] * 2)
)


def test_a_group_of_one_is_that_model() -> None:
    accuracy = group_accuracy([model("++-+")])
    assert (accuracy.by_seed, accuracy.n, accuracy.mean) == ((0.75,), 4, 0.75)
    assert accuracy.ci95 == clustered_wilson_interval([1, 1, 0, 1], samples_an_item=1)


def test_seeds_are_averaged_item_by_item() -> None:
    seeds = [model("++--"), model("+-+-"), model("+---")]
    assert mean_shares(seeds) == {"p0": 1.0, "p1": 1 / 3, "p2": 1 / 3, "p3": 0.0}
    accuracy = group_accuracy(seeds)
    assert accuracy.by_seed == (0.5, 0.5, 0.25)
    assert accuracy.mean == pytest.approx(5 / 12)
    comparison = compare_groups(seeds, [model("-+++")])
    assert comparison.flipped == pytest.approx({"p0": -1.0, "p3": 1.0, "p1": 2 / 3, "p2": 2 / 3})
    assert list(comparison.flipped) == ["p0", "p3", "p1", "p2"]
    assert comparison.ci95 == pytest.approx(bootstrap_interval([-1.0, 2 / 3, 2 / 3, 1.0]))


@given(groups)
def test_the_other_way_round_everything_changes_its_sign(pair: tuple[list, list]) -> None:
    first, second = pair
    there, back = compare_groups(first, second), compare_groups(second, first)
    assert there.difference == pytest.approx(-back.difference)
    assert there.difference == pytest.approx(group_accuracy(second).mean - group_accuracy(first).mean)
    assert there.p_value == back.p_value
    assert there.flipped == {uid: -difference for uid, difference in back.flipped.items()}
    assert (there.over_seeds is None) == (back.over_seeds is None)
    if there.over_seeds and back.over_seeds:
        low, high = back.over_seeds.ci95
        assert there.over_seeds.ci95 == pytest.approx((-high, -low))


@given(groups)
def test_the_order_of_seeds_does_not_matter(pair: tuple[list, list]) -> None:
    first, second = pair
    there, other = compare_groups(first, second), compare_groups(first[::-1], second[::-1])
    assert there.flipped == other.flipped
    assert (there.ci95, there.p_value) == (other.ci95, other.p_value)


def test_with_one_seed_each_the_items_say_what_mcnemar_says() -> None:
    base, trained = model("+" * 5 + "-" * 25), model("-" * 5 + "+" * 20 + "-" * 5)
    assert compare_groups([base], [trained]).p_value == pytest.approx(mcnemar(5, 20), abs=2e-3)


def test_many_items_make_models_different_and_few_seeds_leave_the_recipe_open() -> None:
    """Each pair of models differs clearly on the items, but which group is ahead is the seeds' luck."""
    first = [model("+" * 300 + "-" * 700), model("+" * 600 + "-" * 400)]
    second = [model("+" * 350 + "-" * 650), model("+" * 650 + "-" * 350)]
    comparison = compare_groups(first, second)
    assert comparison.p_value < 0.001
    assert comparison.over_seeds is not None and comparison.over_seeds.p_value > 0.5


def test_welch_against_a_worked_example() -> None:
    """Two samples, t and degrees of freedom by hand: means 3 and 6, variances 1 and 4, n = 3 each: t = 3 / sqrt(5/3),
    df = (5/3)^2 / ((1/3)^2/2 + (4/3)^2/2) = 2.941; the p-value is that of Student's distribution with it."""
    found = over_seeds([2, 3, 4], [4, 6, 8])
    t, df = 3 / math.sqrt(5 / 3), (5 / 3) ** 2 / ((1 / 3) ** 2 / 2 + (4 / 3) ** 2 / 2)
    assert found is not None
    assert found.p_value == pytest.approx(2 * _student_tail(t, df), rel=1e-4)
    assert sum(found.ci95) / 2 == pytest.approx(3.0)


def _student_tail(t: float, df: float) -> float:
    """P(T > t) by Simpson's rule over x = t + u / (1 - u)."""
    scale = math.exp(math.lgamma((df + 1) / 2) - math.lgamma(df / 2)) / math.sqrt(df * math.pi)

    def density(u: float) -> float:
        x = t + u / (1 - u)
        return scale * (1 + x * x / df) ** (-(df + 1) / 2) / (1 - u) ** 2

    steps, end = 2000, 1 - 1e-6
    width = end / steps
    inner = sum((4 if k % 2 else 2) * density(k * width) for k in range(1, steps))
    return width / 3 * (density(0.0) + inner + density(end))


@pytest.mark.parametrize(("first", "second"), [([0.5], [0.6, 0.7]), ([0.5, 0.6], [0.7]), ([0.5, 0.5], [0.7, 0.7])])
def test_without_repetition_or_variance_seeds_say_nothing(first: list[float], second: list[float]) -> None:
    assert over_seeds(first, second) is None


@pytest.mark.parametrize(
    ("first", "second", "named"),
    [
        ([], [model("+")], "a group needs a model"),
        ([{}], [model("+")], "a model items"),
        ([model("+")], [model("++")], "the items differ, 1 and 2, 1 of them in one alone, such as p1"),
        ([model("+"), model("++")], [model("+")], "the items differ, 1 and 2"),
    ],
)
def test_what_cannot_be_compared_is_refused(first: list, second: list, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        compare_groups(first, second)


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.5, 0.9]) == [1.0, 1.0]
    assert holm([]) == []


@given(st.lists(st.floats(0, 1), max_size=6))
def test_holm_never_makes_a_test_more_certain_and_keeps_their_order(values: list[float]) -> None:
    adjusted = holm(values)
    assert all(value <= after <= 1 for value, after in zip(values, adjusted, strict=True))
    pairs = product(zip(values, adjusted, strict=True), repeat=2)
    assert all(a[1] <= b[1] for a, b in pairs if a[0] <= b[0])
