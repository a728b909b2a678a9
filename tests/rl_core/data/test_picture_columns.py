"""The column with images is found by what it holds, and none is passed over in silence."""

import base64
from typing import Any

import pytest

from rl_core.data.column_guesses import NamedColumns
from rl_core.data.inspection import Inspection, inspect_data
from rl_core.sources.rows import Row
from tests.rl_core.data.samples import local, png_bytes

PACKED = base64.b64encode(png_bytes()).decode()
ADDRESS = "https://example.org/a.png"


@pytest.fixture
def look(write_jsonl, tmp_path):
    """`look(*rows, **named)`: what is found in rows with these columns besides question and answer. The image 00 lies
    beside them."""
    (tmp_path / "00").write_bytes(png_bytes())

    def found(*rows: dict[str, Any], **named: str) -> Inspection:
        path = write_jsonl([{"problem": f"{number}?", "answer": "1", **row} for number, row in enumerate(rows)])
        return inspect_data(local(path), NamedColumns(**named))

    return found


@pytest.mark.parametrize(
    ("row", "column"),
    [
        ({"image": "00"}, "image"),
        ({"Image": "00"}, "Image"),
        ({"image": PACKED}, "image"),
        ({"image": [{"image_url": {"url": f"data:image/png;base64,{PACKED}"}}]}, "image"),
        ({"figure": {"bytes": PACKED}}, "figure"),  # no usual name
        ({"scan": "00.png"}, None),  # and there is no such file
        ({"image": "gone.png", "scan": PACKED}, "scan"),
        ({"image": ADDRESS, "image_path": "00"}, "image_path"),
        ({"image": ADDRESS}, "image"),  # its rows say why they cannot be used
        ({"image": "photo.heic"}, "image"),
        ({"image": "", "images": None}, "images"),  # other rows may have some
        ({"image": 7, "file_name": "00"}, "file_name"),
        ({"video": PACKED}, None),
    ],
)
def test_the_column_with_images_is_found(look, row, column):
    assert look(row).source.columns.image_key == column


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (
            {"image": 7},
            "column 'image' has the name of a column with images, and its first value '7' is none: the image is int",
        ),
        ({"image": "a dog"}, "its first value 'a dog' is none: the image file"),
        ({"image": "img/00"}, "its first value 'img/00' is none: the image file"),
        (
            {"image": 7, "images": "00"},
            "'7' is none: the image is int, not bytes, base64, a path or a PIL image; the images are those of 'images'",
        ),
        ({"image_1": PACKED, "image_2": PACKED}, "column 'image_2' holds images too, and only 'image_1' is read"),
        ({"image": "00", "image_path": "00"}, "column 'image_path' holds images too, and only 'image' is read"),
    ],
)
def test_a_column_that_is_not_used_is_named_with_its_first_value(look, row, words):
    (unused,) = look(row).unused
    assert words in unused


def test_a_person_may_name_a_column_or_say_that_there_are_no_images(look):
    found = look({"image": PACKED, "scan": PACKED}, image_key="scan")
    assert found.source.columns.image_key == "scan"
    assert "column 'image' holds images too" in found.unused[0]
    without = look({"image": PACKED}, image_key="")
    assert (without.unused, without.source.columns.image_key) == ((), None)


@pytest.mark.parametrize("numbers", [[0] * 200 + [1] * 200, [0, 1] * 200])
def test_the_rows_looked_at_are_of_all_parts_of_the_data(look, numbers):
    """Half of the rows are text: the first ones, or every other one, of which a step of fixed length could meet one
    kind alone."""
    found = look(*({"image": PACKED if number else None} for number in numbers))
    assert found.source.columns.image_key == "image"
    assert found.source.columns.images_first
    assert [len(row.images) for row in found.source.open() if isinstance(row, Row)] == numbers


def test_absolute_paths_without_an_ending_are_read(look, tmp_path):
    found = look({"image": str(tmp_path / "00")})
    (row,) = found.source.open()
    assert isinstance(row, Row)
    assert row.images == (tmp_path / "00",)


def test_no_more_is_opened_than_a_file_that_is_an_image(look, tmp_path):
    (tmp_path / "secret").write_text("of nobody's concern")
    (unused,) = look({"image": str(tmp_path / "secret")}).unused
    assert "of no known format" in unused
    assert "concern" not in unused
