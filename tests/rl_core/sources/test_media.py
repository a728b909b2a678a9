"""A cell with images means the same in every form and in every kind of file."""

import base64
import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rl_core.sources.columns import Columns
from rl_core.sources.local import LocalSource
from rl_core.sources.media import images_in, media_items, path_named, videos_in
from rl_core.sources.rows import BadRow, Row
from tests.rl_core.data.samples import png_bytes

PICTURES = [png_bytes(colour=(number, 0, 0)) for number in range(6)]


def packed(number: int) -> str:
    return base64.b64encode(PICTURES[number]).decode()


def folded(number: int) -> str:
    """As MIME writes it: in lines, and here in the alphabet of addresses without padding."""
    text = base64.urlsafe_b64encode(PICTURES[number]).decode().rstrip("=")
    return "\n".join(text[place : place + 76] for place in range(0, len(text), 76))


TEXTS: list[Callable[[int], Any]] = [
    packed,
    folded,
    lambda number: f"data:image/png;base64,{packed(number)}",
    lambda number: f"media/{number}",  # without an ending
]
JSON_FORMS: list[Callable[[int], Any]] = [
    *TEXTS,
    lambda number: {"path": f"media/{number}", "bytes": None},
    lambda number: {"bytes": packed(number), "path": "gone.png"},
    lambda number: {"url": f"data:image/png;base64,{packed(number)}"},
    lambda number: {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{packed(number)}", "detail": ""}},
    lambda number: {"type": "image", "image": f"media/{number}", "text": None},
]
PYTHON_FORMS: list[Callable[[int], Any]] = [
    *JSON_FORMS,
    PICTURES.__getitem__,
    lambda number: {"bytes": PICTURES[number], "path": None},
    lambda number: Path("media") / str(number),
]
EMPTY = [None, "", " ", [], (), {}, [""], [None], "[]", "[null]", "['']", float("nan"), {"bytes": None, "path": None}]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A folder in which each of PICTURES is media/<its number>."""
    place = tmp_path_factory.mktemp("rows")
    (place / "media").mkdir()
    for number, picture in enumerate(PICTURES):
        (place / "media" / str(number)).write_bytes(picture)
    return place


def contents(images: tuple[Any, ...]) -> list[bytes]:
    return [image.read_bytes() if isinstance(image, Path) else image for image in images]


def draw_cell(draw: st.DataObject, numbers: list[int], forms: list[Callable[[int], Any]], empty: list[Any]) -> Any:
    """A cell with these pictures in any forms, among empty items; a list may be written as text."""
    items = [draw.draw(st.sampled_from(forms))(number) for number in numbers]
    for item in draw.draw(st.lists(st.sampled_from(empty), max_size=2)):
        items.insert(draw.draw(st.integers(0, len(items))), item)
    if len(items) == 1 and draw.draw(st.booleans()):
        return items[0]
    written = draw.draw(st.sampled_from([list, json.dumps, repr]))
    is_json = all(not isinstance(item, bytes | Path) and "b'" not in repr(item) for item in items)
    return written(items) if is_json and "nan" not in repr(items) else items


@settings(max_examples=200, deadline=None)
@given(st.data(), st.lists(st.integers(0, len(PICTURES) - 1), max_size=3))
def test_a_cell_shows_its_images_in_order_whatever_form_they_have(folder, draw, numbers):
    cell = draw_cell(draw, numbers, PYTHON_FORMS, EMPTY)
    assert contents(images_in(cell, media_dir=folder)) == [PICTURES[number] for number in numbers]
    assert contents(videos_in(cell, media_dir=folder)) == [PICTURES[number] for number in numbers]


@settings(max_examples=40, deadline=None)
@given(st.data(), st.lists(st.lists(st.integers(0, len(PICTURES) - 1), max_size=2), min_size=1, max_size=4))
def test_a_row_shows_the_same_in_every_kind_of_file(folder, draw, rows):
    shown = [[PICTURES[number] for number in numbers] for numbers in rows]
    columns = Columns(images_first=True)
    for ending, forms, empty in (
        ("jsonl", JSON_FORMS, [None, "", [], [""]]),
        ("json", JSON_FORMS, [None, "", [], [""]]),
        ("csv", TEXTS, [""]),
        ("parquet", TEXTS, [None, ""]),
    ):
        cells = [draw_cell(draw, numbers, forms, empty) for numbers in rows]
        path = write(folder / f"rows.{ending}", cells)
        read = list(LocalSource(type="local", path=str(path), columns=columns).open())
        assert not [str(row) for row in read if isinstance(row, BadRow)]
        assert [contents(row.images) for row in read if isinstance(row, Row)] == shown, ending


def write(path: Path, cells: list[Any]) -> Path:
    rows = [{"problem": f"{number}?", "images": cell, "answer": "1"} for number, cell in enumerate(cells)]
    if path.suffix == ".parquet":
        lists = [row | {"images": list(media_items(row["images"]))} for row in rows]
        pq.write_table(pa.Table.from_pylist(lists), path)
    elif path.suffix == ".csv":
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, ["problem", "images", "answer"])
            writer.writeheader()
            writer.writerows(rows)
    else:
        path.write_text(json.dumps(rows) if path.suffix == ".json" else "\n".join(map(json.dumps, rows)))
    return path


@pytest.mark.parametrize("cell", EMPTY)
def test_an_empty_cell_is_no_image(cell):
    assert images_in(cell, media_dir=Path("/media")) == ()


@pytest.mark.parametrize(
    ("cell", "reason"),
    [
        ("https://example.org/" + "a" * 500, "is an address; images are read from files, download it first"),
        ({"url": "gs://bucket/a.png"}, "'gs://bucket/a.png' is an address"),
        (7, "the image is int, not bytes, base64, a path or a PIL image"),
        ({"caption": "a dog"}, "the image is dict, not bytes"),
        ("x" * 300, "is no image and no path: it has 300 letters"),
        (packed(0)[:-5] + "!", "the base64 of the image is damaged"),
        ("data:image/png;base64,", "the data URL of the image holds nothing"),
        ("data:image/png;base64,*", "the data URL of the image is damaged"),
        ("a\0.png", "it holds a NUL character"),
        ([[[[[[[[[["a.png"]]]]]]]]]], "the image is list"),
    ],
)
def test_a_value_that_is_no_image_is_refused_in_a_short_sentence(cell, reason):
    with pytest.raises(ValueError, match="image") as caught:
        images_in(cell, media_dir=Path("/media"))
    assert reason in str(caught.value)
    assert len(str(caught.value)) < 200


def test_a_data_url_may_be_written_without_base64():
    assert images_in("data:image/svg+xml,%3Csvg/%3E", media_dir=Path("/media")) == (b"<svg/>",)


def test_only_a_path_is_named_as_one():
    paths = ["a.png", "media/00000", "[draft]/a.png", "file:///data/a.png", "{a}.png"]
    assert [path_named(*media_items(path)) for path in paths] == [*paths[:3], "/data/a.png", "{a}.png"]
    for other in (packed(0), "data:image/png;base64,", "https://example.org/a.png", "x" * 300, b"png", 7):
        assert path_named(other) is None
