from dataclasses import replace
from itertools import combinations
from statistics import fmean

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from rl_core.evaluation.result import (
    EvaluationResult,
    Vote,
    category_table,
    majority_at_k,
    pass_at_k,
    read_evaluation,
    read_results,
    sample_counts,
    summarise,
    write_evaluation,
)
from rl_core.evaluation.statistics import bootstrap_interval, wilson_interval
from tests.rl_core.evaluation.builders import ITEM, make_items


def test_figures_of_a_greedy_pass():
    items = make_items("+++-?")
    items[1] = replace(items[1], length=9, finish_reason="length")
    items[2] = replace(items[2], parsed=None, parse_failed=True, components={"overall": 0.5})
    result = summarise(items)
    assert result == EvaluationResult(
        mode="greedy",
        n=4,
        samples=4,
        accuracy=0.75,
        ci95=wilson_interval(3, 4),
        bootstrap95=bootstrap_interval([1, 1, 1, 0]),
        pass_at=(),
        majority_at=(),
        parse_failure_rate=0.25,
        truncation_rate=0.2,
        mean_length=5.8,
        reward_mean=3.5 / 4,
        failed_rewards=1,
        categories=(),
    )
    assert EvaluationResult.model_validate_json(result.model_dump_json()) == result


def test_several_responses_give_pass_and_majority_at_k_and_come_back_from_json():
    items = [
        replace(item, mode="sampled", sample_index=index, parsed="3" if item.is_right else f"wrong {index}")
        for index, signs in enumerate(("+--", "+-+", "-++", "---"))
        for item in make_items(signs, categories={"kind": ("a", "b")})
    ]
    result = summarise(items[::-1])
    assert [k for k, _ in result.pass_at] == [k for k, _ in result.majority_at] == [1, 2, 4]
    assert result.pass_at[-1][1] == 1.0
    assert result.majority_at[-1][1] == pytest.approx(2 / 3)  # the second item: four answers, the earliest wrong
    assert result.pass_at[0][1] == result.majority_at[0][1] == pytest.approx(result.accuracy)
    assert EvaluationResult.model_validate_json(result.model_dump_json()) == result


@pytest.mark.parametrize(
    ("items", "named"),
    [
        ([], "need the items of one mode"),
        ([ITEM, replace(ITEM, mode="sampled")], r"\['greedy', 'sampled'\]"),
        ([ITEM, ITEM, replace(ITEM, uid="p1")], r"same number of responses, got \[1, 2\]"),
        ([replace(ITEM, error="no model server", components={})], "none of 1 responses has a score.*no model server"),
    ],
)
def test_items_that_cannot_be_summed_up_are_refused(items, named):
    with pytest.raises(ValueError, match=named):
        summarise(items)


@given(st.integers(1, 5).flatmap(lambda n: st.lists(st.text("+-?", min_size=n, max_size=n), min_size=1, max_size=6)))
def test_responses_without_a_score_count_nowhere(items):
    scored = [signs.replace("?", "") for signs in items if signs.strip("?")]
    assume(scored)
    result = summarise(
        [
            replace(item, uid=f"p{place}", sample_index=index, categories={"all": ("one",)})
            for place, signs in enumerate(items)
            for index, item in enumerate(make_items(signs))
        ]
    )
    shares = [signs.count("+") / len(signs) for signs in scored]
    assert result.accuracy == result.categories[0].accuracy == pytest.approx(fmean(shares))
    assert (result.n, result.samples) == (len(scored), sum(map(len, scored)))
    assert result.failed_rewards == sum(signs.count("?") for signs in items)
    assert [k for k, _ in result.pass_at] == [
        k for k in sample_counts(len(items[0])) if len(items[0]) > 1 and k <= max(map(len, scored))
    ]
    for k, share in result.pass_at:
        chances = [[("+" in chosen) for chosen in combinations(signs, k)] for signs in scored if len(signs) >= k]
        assert share == pytest.approx(fmean(map(fmean, chances)))


def test_an_item_counts_in_each_of_its_categories():
    one, two, three = make_items("+-+")
    table = category_table(
        [
            replace(one, categories={"shape": ("line", "circle"), "goal": ("angle",)}),
            replace(two, categories={"shape": ("line",)}),
            replace(three, categories={}),
        ]
    )
    assert [(row.column, row.value, row.n, row.accuracy) for row in table] == [
        ("goal", "angle", 1, 1.0),
        ("shape", "circle", 1, 1.0),
        ("shape", "line", 2, 0.5),
    ]
    assert table[2].ci95 == wilson_interval(1, 2)


def test_each_of_several_data_sources_is_a_category_and_one_alone_is_none():
    items = make_items("+-+--")
    assert category_table(items) == ()
    sources = [replace(item, data_source=name) for item, name in zip(items, "aaabb", strict=True)]
    sources[4] = replace(sources[4], is_right=None, error="none")
    table = category_table(sources)
    assert [(row.column, row.value, row.n, row.accuracy) for row in table] == [
        ("data_source", "a", 3, 2 / 3),
        ("data_source", "b", 1, 0.0),
    ]


EVALUATION = {
    "greedy": make_items("+-+"),
    "sampled": [replace(ITEM, mode="sampled", sample_index=index) for index in range(2)],
}


def test_an_evaluation_comes_back_as_it_was_written(tmp_path):
    folder = tmp_path / "evaluations" / "base"
    results = write_evaluation(folder, EVALUATION)
    assert results == read_results(folder) == {mode: summarise(items) for mode, items in EVALUATION.items()}
    assert read_evaluation(folder) == EVALUATION
    assert sorted(path.name for path in folder.iterdir()) == ["items.parquet", "result.json"]


small = st.integers(1, 7).flatmap(
    lambda n: st.tuples(st.lists(st.lists(st.booleans(), min_size=n, max_size=n), min_size=1, max_size=5), st.just(n))
)


@given(small, st.data())
def test_pass_at_k_is_the_mean_over_all_choices_of_k_responses(items, data):
    grades, n = items
    k = data.draw(st.integers(1, n))
    expected = fmean(fmean(any(chosen) for chosen in combinations(item, k)) for item in grades)
    assert pass_at_k([sum(item) for item in grades], n=n, k=k) == pytest.approx(expected, abs=1e-12)


def votes(text: str, right: str) -> list[Vote]:
    """A vote a letter; "." answers nothing."""
    return [Vote(answer=None if letter == "." else letter, is_right=letter == right) for letter in text]


@pytest.mark.parametrize(
    ("answers", "k", "share"),
    [
        ("aab", 3, 1.0),
        ("bba", 3, 0.0),
        ("ab", 2, 1.0),  # a tie goes to the earlier answer
        ("ba", 2, 0.0),
        ("..a", 3, 1.0),  # no answer, no vote
        ("...", 3, 0.0),
        ("aabb", 2, 0.5),  # two blocks of two
        ("aabbb", 2, 0.5),  # the rest fills no block
        ("ab", 1, 0.5),
    ],
)
def test_majorities_by_hand(answers, k, share):
    assert majority_at_k([votes(answers, "a")], k=k) == share


@pytest.mark.parametrize(("n", "counts"), [(1, [1]), (2, [1, 2]), (5, [1, 2, 4, 5]), (8, [1, 2, 4, 8])])
def test_the_counts_reported_are_powers_of_two_and_n(n, counts):
    assert sample_counts(n) == counts
