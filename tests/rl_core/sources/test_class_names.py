"""Class numbers with names."""

from pathlib import Path

import pytest

from rl_core.answers import Answer
from rl_core.sources.columns import Columns, RowParser
from rl_core.sources.rows import BadRow, Row


def parsed(answer: Answer | None) -> Row | BadRow:
    columns = Columns(class_names=("cat", "dog"), image_key=None, video_key=None)
    parser = RowParser(columns=columns, data_source="d", media_dir=Path())
    return parser.parse({"problem": "?", "answer": answer}, index=0)


@pytest.mark.parametrize(("answer", "name"), [(0, "cat"), (1, "dog"), ("1", "dog"), (1.0, "dog")])
def test_a_number_is_the_name_of_its_class(answer: Answer, name: str) -> None:
    row = parsed(answer)
    assert isinstance(row, Row) and row.answer == name


@pytest.mark.parametrize("answer", [2, -1, "dog", 0.5])
def test_a_value_that_is_no_number_of_a_class_is_a_bad_row(answer: Answer) -> None:
    row = parsed(answer)
    assert isinstance(row, BadRow) and row.column == "answer"
    assert "is no number of one of the 2 class_names" in row.reason
