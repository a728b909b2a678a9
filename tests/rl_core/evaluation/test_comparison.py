import json
from dataclasses import replace

import pytest

from rl_core.evaluation.comparison import Comparison, compare
from rl_core.evaluation.statistics import mcnemar
from tests.rl_core.evaluation.builders import ITEM, make_items


def test_verdicts_are_paired_by_uid_whatever_their_order() -> None:
    base, trained = make_items("++--+---"), make_items("+-+++++-")
    comparison = compare(base, trained[::-1])
    assert (comparison.n, comparison.both, comparison.only_base, comparison.only_trained, comparison.neither) == (
        8,
        2,
        1,
        4,
        1,
    )
    assert (comparison.gained, comparison.lost) == (("p2", "p3", "p5", "p6"), ("p1",))
    assert comparison.difference == 3 / 8
    assert comparison.p_value == mcnemar(1, 4)
    assert comparison.difference_ci95[0] < 3 / 8 < comparison.difference_ci95[1]
    assert Comparison.from_json(json.loads(json.dumps(comparison.to_json()))) == comparison


def test_a_model_equals_itself() -> None:
    comparison = compare(make_items("+-+"), make_items("+-+"))
    assert (comparison.difference, comparison.p_value, comparison.gained, comparison.lost) == (0.0, 1.0, (), ())


@pytest.mark.parametrize(
    ("base", "trained", "named"),
    [
        ([], [], "one response each"),
        ([ITEM, replace(ITEM, sample_index=1)], [ITEM], "one response each"),
        ([ITEM], [ITEM, ITEM], "one response each"),
        ([ITEM], [replace(ITEM, uid="p5")], "1 and 1, 2 of them in one alone, such as p0"),
        ([ITEM], [], "1 and 0, 1 of them in one alone, such as p0"),
    ],
)
def test_what_cannot_be_paired_is_refused(base: list, trained: list, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        compare(base, trained)
