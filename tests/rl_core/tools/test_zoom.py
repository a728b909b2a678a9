"""A crop is the named part of the picture, in both conventions, at every depth, and the same in every process."""

import pickle
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from rl_core.config.tools import Coordinates
from rl_core.data.crops import PARTS, Crop
from rl_core.data.images import ImageStore, ImageStoreWriter
from rl_core.data.pixels import encode_png
from rl_core.tools.builtin.zoom import zoom_tool
from rl_core.tools.tool import Picture, Tool, ToolSample

EDGES = st.tuples(*(st.integers(0, PARTS) for _ in range(4))).filter(lambda box: box[0] < box[2] and box[1] < box[3])
SIZES = st.tuples(st.integers(1, 300), st.integers(1, 300))


@given(box=EDGES, size=SIZES, whole=SIZES, parent=st.sampled_from(["00ff", "crop-like", "a-1-2"]))
def test_a_crop_is_its_uid(
    box: tuple[int, int, int, int], size: tuple[int, int], whole: tuple[int, int], parent: str
) -> None:
    crop = Crop(parent, box, size)
    assert Crop.of_uid(crop.uid) == crop
    assert "/" not in crop.uid
    assert crop.cut(Image.new("RGB", whole)).size == size
    assert Crop.of_uid(parent) is None


def scene(side: int, box: tuple[int, int, int, int]) -> Image.Image:
    """A white picture with a red rectangle."""
    values = np.full((side, side, 3), 255, np.uint8)
    values[box[1] : box[3], box[0] : box[2]] = (255, 0, 0)
    return Image.fromarray(values)


@pytest.mark.parametrize("coordinates", ["pixels", "relative_1000"])
def test_the_part_that_the_model_names_is_shown(tmp_path: Path, coordinates: Coordinates) -> None:
    """A photograph of 2016 pixels that the model sees at 504: what it names there is cut from the photograph, also out
    of a crop."""
    large = scene(2016, (1200, 400, 1400, 600))
    small = encode_png(large.resize((504, 504)))
    with ImageStoreWriter(tmp_path / "images") as writer:
        uid = writer.add(small, source=encode_png(large))
    store = pickle.loads(pickle.dumps(ImageStore(tmp_path / "images")))
    zoom = Tool(zoom_tool(coordinates, min_pixels=1, max_pixels=504 * 504))
    whole = Picture(uid, (504, 504), (504, 504), uid, (0, 0, 1, 1), (2016, 2016))
    unit = 504 if coordinates == "pixels" else 1000

    def part(pictures: list[Picture], image: int, *places: float) -> Picture:
        found = zoom(ToolSample(pictures), dict(zip(("x1", "y1", "x2", "y2"), places, strict=True), image=image))
        assert isinstance(found, Picture)
        return found

    quarter = part([whole], 1, 0.5 * unit, 0, unit, 0.5 * unit)
    assert store.image(quarter.uid).size == quarter.size == (504, 504)
    inside = unit if coordinates == "relative_1000" else 504
    edges = ((1200 - 1008) / 1008, 400 / 1008, (1400 - 1008) / 1008, 600 / 1008)
    found = part([whole, quarter], 2, *(edge * inside for edge in edges))
    assert found.size == (200, 200), "as many pixels as the photograph has there"
    seen = np.asarray(store.image(found.uid))
    assert (seen[2:-2, 2:-2] == (255, 0, 0)).all()
    assert uid in store and found.uid in store and "0123" not in store


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"x1": 5, "y1": 0, "x2": 5, "y2": 9}, "empty"),
        ({"x1": 9, "y1": 0, "x2": 3, "y2": 9}, "empty"),
        ({"x1": 500, "y1": 500, "x2": 900, "y2": 900}, "empty"),
        ({"x1": 0, "y1": 0, "x2": 9, "y2": 9, "image": 2}, "no image 2"),
        ({"x1": 0, "y1": 0, "x2": 9, "y2": 9, "image": 0}, "no image 0"),
        ({"x1": float("nan"), "y1": 0, "x2": 9, "y2": 9}, "finite"),
        ({"x1": "left", "y1": 0, "x2": 9, "y2": 9}, "x1"),
        ({"x1": 0, "y1": 0, "x2": 9}, "y2"),
        ({"box": [0, 0, 9, 9]}, "box"),
        ({"sample": 1}, "no argument sample"),
    ],
)
def test_a_mistake_is_a_sentence(arguments: dict[str, object], sentence: str) -> None:
    picture = Picture("one", (28, 28), (28, 28), "one", (0, 0, 1, 1), (28, 28))
    zoom = Tool(zoom_tool("pixels", min_pixels=784, max_pixels=784))
    with pytest.raises(ValueError, match=sentence):
        zoom(ToolSample([picture]), arguments)


def test_the_schema_says_what_the_model_gives() -> None:
    function = Tool(zoom_tool("relative_1000", min_pixels=1, max_pixels=1)).schema["function"]
    assert function["name"] == "zoom"
    assert [*function["parameters"]["properties"]] == ["x1", "y1", "x2", "y2", "image"]
    assert function["parameters"]["required"] == ["x1", "y1", "x2", "y2"]
    assert "thousandths" in function["parameters"]["properties"]["x1"]["description"]
