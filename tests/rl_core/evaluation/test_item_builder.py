from rl_core.evaluation.item_builder import categories_of


def test_columns_of_a_row_become_categories() -> None:
    extra = {"type": ["Triangle", "Line"], "level": 3, "none": None, "other": "x"}
    assert categories_of(extra, ("type", "level", "none", "missing")) == {"type": ("Triangle", "Line"), "level": ("3",)}
