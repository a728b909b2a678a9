"""The pictures of configs/zoom: what the prompt shows says where the objects are and not how many, and zoom says how
many."""

import re
from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from benchmarks.calling_model import WORDS
from configs.zoom import scenes
from rl_core.config.loading import load_config
from rl_core.config.run import RunConfig
from rl_core.data.crops import Crop
from rl_core.data.pixels import prepare_image
from rl_core.sources.counting import CountingSource
from rl_core.sources.scenes import render_scene
from rl_core.tools.calls import calls_in
from rl_core.tools.tool import Picture, ToolSample
from rl_core.tools.toolbox import builtin_tools, tool_schemas

CONFIG: RunConfig = load_config(Path(scenes.__file__).with_name("zoom.yaml"))
ENLARGED = (2 * scenes.SEEN, 2 * scenes.SEEN)
"""Size to which the processor of a tiny Qwen2.5-VL enlarges the smallest images."""

placed = given(seed=st.integers(0, 10**6), quarter=st.integers(0, 3))


def scene(seed: int, objects: int) -> np.ndarray:
    """A rendered scene of so many objects."""
    source = CountingSource(
        type="counting", size=1, scene_seed=seed, object_size=(0.13, 0.13), min_objects=objects, max_objects=objects
    )
    return render_scene(source.scene(0), image_size=scenes.SIDE)


def overview(seed: int, quarter: int) -> np.ndarray:
    draw = np.random.default_rng(seed)
    colours = draw.integers(30, 50, (4, 3))
    colours[quarter] = draw.integers(155, 170, 3)
    return colours


def prompted(picture: Image.Image) -> tuple[bytes, bytes | None]:
    """What the prompt shows of a picture, and what is kept for zoom."""
    data = CONFIG.data
    stored = prepare_image(
        picture, min_pixels=data.min_pixels, max_pixels=data.max_pixels, max_source_pixels=data.max_source_pixels
    )
    return stored.encoded, stored.source


def zoomed(picture: Image.Image, reply: str) -> Image.Image:
    """What the tool of the config shows of a picture when the model says this."""
    (written,) = calls_in(reply, tool_schemas(CONFIG.tools, CONFIG.data))
    assert written.mistake is None
    shown = Picture("whole", ENLARGED, ENLARGED, "whole", (0, 0, 1, 1), picture.size)
    part = builtin_tools(CONFIG.tools, CONFIG.data)[written.name](ToolSample((shown,)), written.arguments)
    return Crop.of_uid(part.uid).cut(picture)


@settings(max_examples=25)
@placed
def test_the_prompt_shows_the_same_of_one_object_and_of_six(seed: int, quarter: int) -> None:
    pictures = [scenes.lit(scene(seed, objects), quarter, overview(seed, quarter)) for objects in (1, 6)]
    (few, source), (many, other) = map(prompted, pictures)
    assert few == many
    assert source != other


@settings(max_examples=25)
@placed
def test_zoom_on_the_quarter_shows_the_scene_and_on_another_one_nothing(seed: int, quarter: int) -> None:
    drawn = scene(seed, 4)
    picture = scenes.lit(drawn, quarter, overview(seed, quarter))
    assert np.array_equal(zoomed(picture, scenes.call(quarter)), drawn)
    empty = np.asarray(zoomed(picture, scenes.call((quarter + 1) % 4)))
    assert np.ptp(empty, axis=(0, 1)).max() == 0


def test_a_picture_is_one_of_the_drawn_scenes_and_the_right_quarter_is_bright() -> None:
    quarters, counts = [], []
    for index in range(80):
        picture, quarter, count = scenes.drawn(11, index)
        assert picture.size == (4 * scenes.SIDE, 4 * scenes.SIDE)
        assert int(np.asarray(picture.resize((2, 2))).sum(axis=2).argmax()) == quarter
        quarters.append(quarter)
        counts.append(count)
    assert min(np.bincount(quarters)) > 8
    assert set(counts) == {1, 2, 3, 4, 5, 6}
    assert abs(np.corrcoef(quarters, counts)[0, 1]) < 0.4


def test_every_second_call_of_the_lessons_is_right_and_answers_are_of_what_a_call_shows() -> None:
    called = answered = 0
    for index, lesson in enumerate(scenes.lessons(3, 80)):
        picture, right, count = scenes.drawn(3, index)
        if index % 4:
            called += lesson["answer"] == scenes.call(right)
        else:
            reply = lesson["problem"][1]["content"]
            assert lesson["answer"] == f"<answer>{count}</answer>"
            assert lesson["images"][1] == zoomed(picture, reply)
            answered += reply == scenes.call(right)
    assert 24 <= called <= 38  # of 60
    assert 15 <= answered < 20  # of 20


def test_lessons_without_the_tool_have_no_call() -> None:
    for index, lesson in enumerate(scenes.lessons(3, 4, with_tool=False)):
        assert lesson == {"problem": scenes.QUESTION, "images": [scenes.drawn(3, index)[0]]} | {
            "answer": f"<answer>{scenes.drawn(3, index)[2]}</answer>"
        }


def test_the_words_of_a_call_are_those_that_the_tokenizer_gets() -> None:
    for quarter in range(4):
        assert tuple(re.split(r"(?<=[ ])\d+", scenes.call(quarter))) == WORDS
