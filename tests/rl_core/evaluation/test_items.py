from dataclasses import replace

from rl_core.evaluation.items import graded_item, read_items, write_items
from rl_core.types import Score
from tests.rl_core.builders import make_prompt
from tests.rl_core.evaluation.builders import ITEM, make_items

FAILED = replace(
    ITEM, uid="p9", parsed=None, parse_failed=None, is_right=None, components={}, error="no result", image_uids=()
)


def test_items_come_back_from_parquet_as_they_were(tmp_path):
    items = [
        *make_items("+-"),
        FAILED,
        replace(
            ITEM, turns=({"role": "assistant", "content": "hm"}, {"role": "tool", "calls": [], "image_uids": ["a"]})
        ),
        replace(ITEM, mode="sampled", sample_index=3, finish_reason="length"),
        replace(ITEM, length=None, finish_reason=None, categories={"shape": ("line", "circle"), "goal": ("angle",)}),
    ]
    write_items(tmp_path / "items.parquet", items)
    assert read_items(tmp_path / "items.parquet") == items


def test_equal_items_give_equal_bytes(tmp_path):
    turned = replace(ITEM, components=dict(reversed(ITEM.components.items())))
    for name, item in (("a", ITEM), ("b", turned)):
        write_items(tmp_path / name, [item, FAILED])
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_columns_of_a_row_become_categories():
    extra = {"type": ["Triangle", "Line"], "level": 3, "none": None, "other": "x"}
    item = graded_item(
        replace(make_prompt(), extra=extra),
        "x",
        Score(components={"accuracy": 1.0}),
        mode="greedy",
        sample_index=0,
        accuracy_key="accuracy",
        categories=("type", "level", "none", "missing"),
        has_parser=True,
    )
    assert item.categories == {"type": ("Triangle", "Line"), "level": ("3",)}
    assert item.parse_failed is True
