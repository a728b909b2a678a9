"""The column with images is found by what it holds, and none is passed over in silence."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rl_core.data.column_guesses import NamedColumns
from rl_core.data.inspection import Inspection, inspect_data
from rl_core.sources.options import columns_named
from rl_core.sources.rows import Row
from tests.rl_core.data.samples import local, png_bytes

PACKED = base64.b64encode(png_bytes()).decode()
ADDRESS = "https://example.org/a.png"


@pytest.fixture
def look(write_jsonl, tmp_path):
    """`look(*rows, **named)`: what is found in rows with these columns besides question and answer. The image 00 lies
    beside them."""
    (tmp_path / "00").write_bytes(png_bytes())

    def found(*rows: dict[str, Any], **named: Any) -> Inspection:
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
        ({"image": "", "images": None}, ("image", "images")),  # other rows may have some
        ({"image": 7, "file_name": "00"}, "file_name"),
        ({"video": PACKED}, None),
        ({"left_image": "00"}, "left_image"),
        ({"scan": "00"}, "scan"),  # no usual name, and no ending
        ({"view": ["00", "00"]}, "view"),
        ({"scan": "rows.jsonl"}, None),  # a file that is no image
        ({"scan": "00", "mask": PACKED}, "mask"),
        ({"id": "00", "scan": "00"}, "scan"),
        ({"answer": "00"}, None),
        ({"image_size": "00x00", "num_images": 1, "has_image": True}, None),
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
        ({"image_1": PACKED, "image_2": "a dog"}, "its first value 'a dog' is none: the image file"),
        (
            {"image": "00", "image_path": "00"},
            "column 'image_path' holds images too, and only 'image' is read (the other one: --image-key image_path; "
            "all: --image-key image,image_path)",
        ),
        ({"image": PACKED, "images": [PACKED, "00"]}, "column 'image' holds images too, and only 'images' is read"),
        ({"left_image": "a dog"}, "'left_image' has the name of a column with images, and its first value 'a dog'"),
        ({"front": "00", "back": PACKED}, "column 'front' holds images too, and only 'back' is read"),
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


SERIES = (
    ("image_1", "image_2", "image_10"),
    ("image", "image2"),
    ("image", "images"),
    ("Image 1", "Image 2"),
    ("img0", "img1", "img2"),
    ("image_1_path", "image_2_path"),
    ("figure_1", "figure_2"),  # no usual name
    ("picture-a", "picture-b"),
    tuple(f"image_{number}" for number in range(1, 8)),  # MMMU
)


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(SERIES), st.data())
def test_the_columns_of_a_series_are_used_in_order_and_an_empty_cell_is_no_image(
    tmp_path_factory: pytest.TempPathFactory, names: tuple[str, ...], data: st.DataObject
) -> None:
    cell = st.sampled_from([None, "", [], "image"])
    rows = data.draw(st.lists(st.tuples(*(cell for _ in names)), min_size=1, max_size=6))
    rows.append(tuple("image" for _ in names))
    shown = [[f"{row}-{place}.png" for place, one in enumerate(cells) if one] for row, cells in enumerate(rows)]
    folder = tmp_path_factory.mktemp("series")
    for number, name in enumerate(one for row in shown for one in row):
        (folder / name).write_bytes(png_bytes((1, 1), (number, 0, 0)))
    lines = [
        {"problem": "?", "answer": "1", **{
            name: f"{row}-{place}.png" if cells[place] else cells[place]
            for place, name in data.draw(st.permutations(list(enumerate(names))))
        }}
        for row, cells in enumerate(rows)
    ]  # fmt: skip
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = inspect_data(local(path))
    assert (found.source.columns.image_key, found.unused) == (names, ())
    assert any(doubt.endswith("in this order") for doubt in found.doubts)
    read = [row for row in found.source.open() if isinstance(row, Row)]
    assert [[str(image)[len(str(folder)) + 1 :] for image in row.images] for row in read] == shown
    assert [row.question.count("<image>") for row in read] == list(map(len, shown))


@pytest.mark.parametrize("names", [("image", "image_path"), ("image", "scan"), ("image", "mask_image")])
def test_columns_whose_order_nobody_says_are_used_together_where_a_person_names_them(look, tmp_path, names):
    for name in ("00.png", "01.png"):
        (tmp_path / name).write_bytes(png_bytes())
    first, second = names
    row = {first: "00.png", second: "01.png"}
    alone = look(row)
    assert isinstance(alone.source.columns.image_key, str)
    assert len(alone.unused) == 1
    found = look(row, image_key=(second, first))
    assert (found.source.columns.image_key, found.unused) == ((second, first), ())
    (read,) = found.source.open()
    assert isinstance(read, Row)
    assert read.images == (tmp_path / "01.png", tmp_path / "00.png")
    with pytest.raises(ValueError, match=r"no column 'scann' \(--image-key\); did you mean"):
        look({"scan": "00"}, image_key=("scan", "scann"))


IN_ORDER = (
    ("left_image", "right_image"),
    ("before_img", "after_img"),  # the order of the table, not that of the alphabet
    ("image_query", "image_key", "image_choice"),
    ("leftImage", "rightImage"),
    ("Source Photo", "Target Photo"),
    ("front_image_path", "back_image_path"),
    ("img_a", "img_b"),
    ("scan",),
)
WRITTEN = {"one": str, "list": lambda path: [path], "text": lambda path: json.dumps([path])}


@settings(max_examples=60, deadline=None)
@given(
    names=st.sampled_from(IN_ORDER),
    folder=st.sampled_from(["", "media", "deep/er", "absolute"]),
    ending=st.sampled_from(["", ".v2", ".0"]),
    form=st.sampled_from(sorted(WRITTEN)),
    full=st.lists(st.booleans(), min_size=3, max_size=12),
)
def test_paths_without_a_known_ending_are_images_by_what_they_lead_to(
    tmp_path_factory: pytest.TempPathFactory,
    names: tuple[str, ...],
    folder: str,
    ending: str,
    form: str,
    full: list[bool],
) -> None:
    """In a folder that the rows name, that they do not name, or that they name from the root; beside ids and answers
    that are names of such files too."""
    root = tmp_path_factory.mktemp("paths")
    place = root / folder
    place.mkdir(parents=True, exist_ok=True)
    named = {"": "", "media": "", "deep/er": "deep/er/", "absolute": f"{place}/"}[folder]
    lines, expected = [], []
    for row, is_full in enumerate([True, *full]):
        line: dict[str, Any] = {"id": f"{row * len(names)}{ending}", "problem": "?", "answer": str(row)}
        shown = []
        for column, name in enumerate(names):
            file = f"{row * len(names) + column}{ending}"
            line[name] = ""
            if is_full or column % 2:
                line[name] = WRITTEN[form](named + file)
                shown.append(png_bytes((1, 1), (row, column, 0)))
                (place / file).write_bytes(shown[-1])
        lines.append(line)
        expected.append(shown)
    path = root / "rows.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = inspect_data(local(path))
    assert (columns_named(found.source.columns.image_key), found.unused) == (names, ())
    assert found.source.columns.answer_key == "answer"
    read = [row for row in found.source.open() if isinstance(row, Row)]
    assert [[Path(str(image)).read_bytes() for image in row.images] for row in read] == expected


def test_a_column_that_repeats_the_images_of_another_is_not_read_twice(look):
    found = look({"image": "00", "images": ["00"]}, {"image": None, "images": []})
    assert found.source.columns.image_key == "image"


def test_questions_without_a_place_among_others_with_one_get_their_images_first(look):
    found = look({"image": "00"}, {"image": "00", "problem": "In <image>?"}, {"image": None})
    assert "1 question(s) of the rows looked at have no <image>" in found.doubts[-1]
    assert [row.question for row in found.source.open() if isinstance(row, Row)] == ["<image>0?", "In <image>?", "2?"]


@pytest.mark.parametrize("numbers", [[0] * 200 + [1] * 200, [0, 1] * 200])
def test_the_rows_looked_at_are_of_all_parts_of_the_data(look, numbers):
    """Half of the rows are text: the first ones, or every other one, of which a step of fixed length could meet one
    kind alone."""
    found = look(*({"image": PACKED if number else None} for number in numbers))
    assert found.source.columns.image_key == "image"
    assert found.source.columns.images_first
    assert [len(row.images) for row in found.source.open() if isinstance(row, Row)] == numbers


def test_no_more_is_opened_than_a_file_that_is_an_image(look, tmp_path):
    (tmp_path / "secret").write_text("of nobody's concern")
    (unused,) = look({"image": str(tmp_path / "secret")}).unused
    assert "of no known format" in unused
    assert "concern" not in unused
