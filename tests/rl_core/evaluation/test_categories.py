from dataclasses import replace

from rl_core.evaluation.categories import CategoryRow, category_table
from rl_core.evaluation.item_builder import categories_of
from rl_core.evaluation.statistics import wilson_interval
from tests.rl_core.evaluation.builders import make_items


def test_an_item_counts_in_each_of_its_categories() -> None:
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
    assert [CategoryRow.from_json(row.to_json()) for row in table] == list(table)


def test_several_responses_to_an_item_are_one_item() -> None:
    items = [replace(item, sample_index=i, categories={"a": ("b",)}) for i in range(4) for item in make_items("+-")]
    (row,) = category_table(items)
    assert (row.n, row.accuracy) == (2, 0.5)


def test_columns_of_a_row_become_categories() -> None:
    extra = {"type": ["Triangle", "Line"], "level": 3, "none": None, "other": "x"}
    assert categories_of(extra, ("type", "level", "none", "missing")) == {"type": ("Triangle", "Line"), "level": ("3",)}
