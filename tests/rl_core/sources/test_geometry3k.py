import json

import pytest

from rl_core.sources.rows import BadRow
from tests.rl_core.data.samples import local, png_bytes

ITEM = {"id": 7, "annotat_text": "Find $x$.", "choices": ["30", "\\frac{1}{2}", "60", "80"], "answer": "B"}


def write_item(folder, number, **change):
    item = folder / str(number)
    item.mkdir(parents=True)
    (item / "data.json").write_text(json.dumps(ITEM | {"id": number} | change))
    (item / "img_diagram.png").write_bytes(png_bytes())


def test_items_come_by_number_with_the_text_of_the_right_choice(tmp_path):
    for number in (10, 9, 100):
        write_item(tmp_path, number)
    rows = list(local(tmp_path).open())
    assert [row.origin for row in rows] == ["9", "10", "100"]
    assert rows[0].question == "<image>Find $x$."
    assert rows[0].answer == "\\frac{1}{2}"
    assert rows[0].images == (tmp_path / "9" / "img_diagram.png",)
    assert rows[0].extra["letter"] == "B"


@pytest.mark.parametrize(
    ("change", "column", "reason"),
    [
        ({"answer": None}, "answer", "the answer is missing"),
        ({"answer": "E"}, "answer", "none of the choices"),
        ({"choices": None}, "answer", "none of the choices"),
        ({"annotat_text": ""}, "annotat_text", "the question is missing"),
        ({"annotat_text": "<image> x"}, "annotat_text", "2 <image> in the question"),
        ({"data_type": "\ud83d"}, "data_type", "half a character"),
    ],
)
def test_an_unusable_item_is_named(tmp_path, change, column, reason):
    write_item(tmp_path, 3, **change)
    (bad,) = local(tmp_path).open()
    assert isinstance(bad, BadRow)
    assert (bad.origin, bad.column) == ("3", column)
    assert reason in bad.reason


@pytest.mark.parametrize("text", ["{", "[]"])
def test_an_unreadable_item_is_a_bad_row(tmp_path, text):
    write_item(tmp_path, 3)
    (tmp_path / "3" / "data.json").write_text(text)
    (bad,) = local(tmp_path).open()
    assert bad.column == "data.json"


def test_a_diagram_that_is_a_link_out_of_its_folder_is_not_read(tmp_path):
    write_item(tmp_path / "items", 1)
    diagram = tmp_path / "items" / "1" / "img_diagram.png"
    diagram.rename(tmp_path / "elsewhere.png")
    diagram.symlink_to(tmp_path / "elsewhere.png")
    (row,) = local(tmp_path / "items").open()
    assert isinstance(row, BadRow)
    assert (row.column, row.index) == ("img_diagram.png", 0)
    assert "leads out of" in row.reason
