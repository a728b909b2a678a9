"""Two models, or two groups of models, on the same items: what items say about their difference, and what seeds say."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_core.evaluation.comparison import (
    ItemPair,
    compare_answers,
    compare_groups,
    compare_items,
    group_accuracy,
    mean_shares,
    pick_gallery,
)
from rl_core.evaluation.result import item_shares
from rl_core.evaluation.statistics import PairedCounts, bootstrap_interval, mcnemar, paired_difference_interval
from tests.rl_core.evaluation.builders import ITEM, make_items


def test_items_are_paired_by_uid_whatever_their_order():
    first, second = make_items("++--+---"), make_items("+-+++++-")
    comparison = compare_items(first, second[::-1])
    counts = PairedCounts(both=2, only_first=1, only_second=4, neither=1)
    assert (comparison.n, comparison.counts) == (8, counts)
    assert (comparison.gained, comparison.lost) == (("p2", "p3", "p5", "p6"), ("p1",))
    assert (comparison.first, comparison.second, comparison.difference) == (3 / 8, 6 / 8, 3 / 8)
    assert comparison.p_value == mcnemar(1, 4)
    assert comparison.ci95 == paired_difference_interval(counts)
    assert comparison.over_seeds is None


@pytest.mark.parametrize(
    ("first", "second", "named"),
    [
        ([], [], "one response each"),
        ([ITEM, replace(ITEM, sample_index=1)], [ITEM], "one response each"),
        ([ITEM], [ITEM, ITEM], "one response each"),
        ([ITEM], [replace(ITEM, uid="p5")], "1 and 1 items, 2 of them on one side only, such as p0"),
        ([ITEM], [], "1 and 0 items, 1 of them on one side only, such as p0"),
    ],
)
def test_items_that_cannot_be_paired_are_refused(first, second, named):
    with pytest.raises(ValueError, match=named):
        compare_items(first, second)


def model(signs: str) -> dict[str, float]:
    """One item a sign: "+" is right, "-" is wrong."""
    return {f"p{place}": float(sign == "+") for place, sign in enumerate(signs)}


groups = st.integers(1, 12).flatmap(
    lambda n: st.tuples(*[st.lists(st.text("+-", min_size=n, max_size=n).map(model), min_size=1, max_size=4)] * 2)
)


def test_the_interval_over_seeds_stays_within_the_accuracies_that_there_are():
    models = [{uid: float(place < right) for place, uid in enumerate("abcdefghij")} for right in (10, 9, 10, 6)]
    found = group_accuracy(models)
    assert found.sd == pytest.approx(0.1893, abs=1e-4)
    assert found.over_seeds == pytest.approx((0.5738, 1.0), abs=1e-4)
    alone = group_accuracy(models[:1])
    assert (alone.sd, alone.over_seeds) == (None, None)


def test_seeds_are_averaged_item_by_item():
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
def test_the_other_way_round_everything_changes_its_sign(pair):
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


@given(st.integers(1, 30).flatmap(lambda n: st.tuples(*[st.text("+-", min_size=n, max_size=n)] * 2)))
def test_single_answers_and_groups_of_one_see_the_same_difference(pair):
    first, second = map(model, pair)
    items = compare_answers(*({uid: share == 1 for uid, share in one.items()} for one in (first, second)))
    shares = compare_groups([first], [second])
    seen = ("n", "first", "second", "difference", "flipped", "gained", "lost")
    assert all(getattr(items, name) == getattr(shares, name) for name in seen)
    assert items.counts is not None and shares.counts is None


@pytest.mark.parametrize(
    ("first", "second", "named"),
    [
        ([], [model("+")], "a group needs at least one model"),
        ([{}], [model("+")], "at least one item"),
        ([model("+")], [model("++")], "the items differ: 1 and 2 items, 1 of them on one side only, such as p1"),
        ([model("+"), model("++")], [model("+")], "the items differ: 1 and 2"),
    ],
)
def test_groups_that_cannot_be_compared_are_refused(first, second, named):
    with pytest.raises(ValueError, match=named):
        compare_groups(first, second)


@given(st.integers(1, 12).flatmap(lambda n: st.tuples(*[st.text("+-?", min_size=n, max_size=n)] * 2)))
def test_only_items_with_a_score_on_both_sides_are_compared(pair):
    first, second = map(make_items, pair)
    both = [place for place, signs in enumerate(zip(*pair, strict=True)) if "?" not in signs]
    if not both:
        with pytest.raises(ValueError, match="has a score on both sides"):
            compare_items(first, second)
        return
    found = compare_items(first, second)
    assert found == compare_items(*([items[place] for place in both] for items in (first, second)))
    shares = compare_groups(*([item_shares(items)] for items in (first, second)))
    assert (shares.n, shares.difference, shares.flipped) == (found.n, found.difference, found.flipped)
    assert {one.uid for one, _ in pick_gallery(first, second, count=12)} == {f"p{place}" for place in both}


def test_a_seed_without_a_score_leaves_the_item_to_the_others():
    seeds = [item_shares(make_items("+?-")), item_shares(make_items("++?"))]
    assert mean_shares(seeds) == {"p0": 1.0, "p1": 1.0, "p2": 0.0}
    assert group_accuracy(seeds).by_seed == (0.5, 1.0)


grades = st.lists(st.sampled_from(["++", "+-", "-+", "--"]), min_size=1, max_size=40)


def gallery(pairs: list[str], count: int) -> list[ItemPair]:
    base, trained = make_items("".join(p[0] for p in pairs)), make_items("".join(p[1] for p in pairs), response="new")
    return pick_gallery(base, trained, count=count)


def kinds(rows: list[ItemPair]) -> Counter:
    return Counter("+-"[not base.is_right] + "+-"[not trained.is_right] for base, trained in rows)


def test_flips_come_first_and_failures_are_not_hidden():
    pairs = ["-+"] * 30 + ["+-"] * 3 + ["--"] * 5 + ["++"] * 20
    rows = gallery(pairs, 12)
    assert kinds(rows) == {"-+": 5, "+-": 3, "--": 2, "++": 2}
    assert all(base.is_right != trained.is_right for base, trained in rows[:8])


@given(grades, st.integers(0, 50))
def test_the_gallery_has_the_requested_number_of_rows_or_all_items(pairs, count):
    rows = gallery(pairs, count)
    assert len(rows) == len({base.uid for base, _ in rows}) == min(count, len(pairs))
    flips = sum(pair in ("+-", "-+") for pair in pairs)
    assert kinds(rows)["+-"] + kinds(rows)["-+"] >= min(flips, count - count // 3)


@given(grades, st.randoms(use_true_random=False))
def test_the_order_of_the_items_does_not_matter(pairs, shuffle):
    base, trained = make_items("".join(p[0] for p in pairs)), make_items("".join(p[1] for p in pairs))
    expected = pick_gallery(base, trained, count=9)
    shuffle.shuffle(base)
    shuffle.shuffle(trained)
    assert pick_gallery(base, trained, count=9) == expected
