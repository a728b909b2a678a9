"""Several columns of images, and numbered places (`<image 2>`) in questions, conversations and options, as in MMMU."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_core.sources.columns import Columns, RowParser, check_columns
from rl_core.sources.conversation import place_images
from rl_core.sources.rows import BadRow, Row

NAMES = ("image_1", "image_2", "image_3")


def parse(values: dict[str, Any], **columns: Any) -> Row | BadRow:
    columns = {"image_key": NAMES, **columns}
    parser = RowParser(columns=Columns(**columns), data_source="test", media_dir=Path("/media"))
    return parser.parse({"problem": "?", "answer": "1", **values}, index=0)


@given(st.data())
def test_each_place_shows_the_image_of_its_number(data: st.DataObject) -> None:
    columns = [[b"%d.%d" % (number, place) for place in range(data.draw(st.integers(0, 2)))] for number in range(1, 5)]
    filled = [number for number, images in enumerate(columns, start=1) if images]
    again = data.draw(st.lists(st.sampled_from(filled))) if filled else []
    marks = data.draw(st.permutations([*filled, *again]))
    cut = data.draw(st.integers(0, len(marks)))
    form = data.draw(st.sampled_from(["<image %d>", "<image_%d>", "<image-%d>", "<image%d>"]))
    turns = ["in " + ", ".join(form % number for number in part) for part in (marks[:cut], marks[cut:])]
    placed = place_images(turns, {"A": "none"}, columns)
    assert [*placed.images] == [image for number in marks for image in columns[number - 1]]
    assert [turn.count("<image>") for turn in placed.turns] == [
        sum(len(columns[number - 1]) for number in part) for part in (marks[:cut], marks[cut:])
    ]
    assert placed.options == {"A": "none"}


@pytest.mark.parametrize(
    ("values", "question", "images"),
    [
        ({"problem": "<image 2> or <image 1>?", "image_1": b"a", "image_2": b"b"}, "<image> or <image>?", (b"b", b"a")),
        ({"problem": "<image 3>?", "image_1": None, "image_2": "", "image_3": b"c"}, "<image>?", (b"c",)),
        ({"problem": "<image><image> In <image 1>?", "image_1": b"a", "image_3": b"c"}, None, (b"a", b"c")),
        ({"problem": "None?"}, "None?", ()),
        ({"problem": "<image 2><image 1>?", "image_2": [b"a", b"b"], "image_1": []}, "no image of this number", None),
        ({"problem": "<image 0>?", "image_1": b"a"}, "has <image 0>, and the row no image of this number", None),
        ({"problem": "<image 1>?", "image_1": b"a", "image_3": b"c"}, "has no <image 3>, and the row an image", None),
        ({"problem": "<image 1>?"}, "has <image 1>, and the row no image of this number", None),
        ({"problem": "<image>?", "image_1": b"a", "image_2": b"b"}, "1 <image> in the question and 2 image(s)", None),
    ],
)
def test_a_place_without_its_image_and_an_image_without_its_place_are_named(values, question, images):
    row = parse(values)
    if images is None:
        assert isinstance(row, BadRow)
        assert (row.column, question in row.reason) == ("problem", True), row.reason
    else:
        assert isinstance(row, Row), row
        assert (row.question, row.images) == (question or values["problem"], images)


def test_a_list_in_one_column_is_numbered_by_its_items():
    row = parse({"problem": "<image 2>, <image 1>", "images": [b"a", b"b"]}, image_key="images")
    assert isinstance(row, Row)
    assert (row.question, row.images) == ("<image>, <image>", (b"b", b"a"))


def test_options_show_the_images_that_the_question_does_not():
    shown = {"image_1": b"a", "image_2": b"b", "image_3": b"c", "choices": ["<image 3>", "<image 2>"], "answer": 1}
    row = parse({"problem": "As <image 1>?", **shown}, options_key="choices", answer_as="index")
    assert isinstance(row, Row)
    assert (row.question, row.options, row.images) == (
        "As <image>?",
        {"A": "<image>", "B": "<image>"},
        (b"a", b"c", b"b"),
    )
    assert (row.answer, row.template_values["choices"]) == ("B", row.options)
    listed = parse({"problem": "<image 1>: <image 3> or <image 2>?", **shown}, options_key="choices", answer_as="index")
    assert isinstance(listed, Row), "the question shows them itself"
    assert (listed.options, listed.extra["choices"]) == ({"A": "<image 3>", "B": "<image 2>"}, shown["choices"])


def test_the_column_at_fault_is_named():
    bad = parse({"problem": "?", "image_1": b"a", "image_2": "https://example.org/b.png"}, images_first=True)
    assert isinstance(bad, BadRow)
    assert (bad.column, "is an address" in bad.reason) == ("image_2", True)


def test_each_of_several_columns_must_be_there():
    check_columns(["problem", "answer", *NAMES], Columns(image_key=NAMES), place="x")
    with pytest.raises(ValueError, match=r"no column 'image_3' \(columns.image_key; null for rows without\)"):
        check_columns(["problem", "answer", *NAMES[:2]], Columns(image_key=NAMES), place="x")
