"""MiniCPM-V 4.6: the tokens of images follow from their sizes, with their numbers in the prompt."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from transformers import AutoProcessor

from rl_core.config.model import TinyModel
from rl_core.config.tools import ToolsConfig
from rl_core.data.chat import ChatRenderer, Media
from rl_core.families.registry import FAMILIES
from rl_core.models.tiny import build_tiny_model
from rl_core.tools.turns import TurnRenderer

VISION = FAMILIES["minicpmv4_6"].vision
SIZES = [(1, 1), (1, 20), (33, 660), (56, 56), (57, 131), (84, 84), (112, 57), (224, 448), (280, 56), (448, 448)]
"""Width and height: of no slices, and of two to four in a row, in a column and in a square."""


def build(folder: Path, family: str) -> Path:
    source = TinyModel(type="tiny", family=family, num_layers=1, vision_depth=1)
    build_tiny_model(source, folder, corpus=["How many? 0123456789"] * 4, seed=1)
    return folder


def renderer(folder: Path) -> ChatRenderer:
    return ChatRenderer(folder, prompt_template=None, system_prompt=None)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("model"), "minicpmv4_6")


def check_tokens(folder: Path, sizes: Sequence[tuple[int, int]]) -> None:
    chat, processor = renderer(folder), AutoProcessor.from_pretrained(folder)
    text = processor.image_token * len(sizes) + "How many?"
    (rendered,) = chat.tokenised([text], [Media(sizes)])
    made = processor(text=[text], images=[Image.new("RGB", size) for size in sizes])
    np.testing.assert_array_equal(rendered.token_ids, made["input_ids"][0])


@settings(max_examples=20)
@given(sizes=st.lists(st.tuples(st.integers(1, 400), st.integers(1, 400)), min_size=1, max_size=3))
def test_the_tokens_of_a_prompt_are_those_of_the_processor(sizes: list[tuple[int, int]], folder: Path) -> None:
    check_tokens(folder, sizes)


def test_numbers_of_images_may_have_two_digits(folder: Path) -> None:
    check_tokens(folder, [(56, 56)] * 12)


@pytest.mark.parametrize("size", SIZES)
def test_the_size_that_is_shown_is_that_of_the_finest_patches(size: tuple[int, int], folder: Path) -> None:
    processor = AutoProcessor.from_pretrained(folder)
    (media,) = VISION.image_inputs(processor, [Image.new("RGB", size)])
    whole, *slices = media.tensors["target_sizes"].prod(-1).tolist()
    width, height = VISION.shown_size(processor, size)
    assert width * height == VISION.patch_size**2 * (sum(slices) or whole)


@pytest.mark.parametrize(("name", "other"), [("use_image_id", False), ("slice_mode", False), ("downsample_mode", "4x")])
def test_settings_that_vllm_or_the_trainer_does_not_follow_are_refused(
    name: str, other: object, folder: Path, tmp_path: Path
) -> None:
    for path in folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    fields = json.loads((tmp_path / "processor_config.json").read_text())
    fields["image_processor"][name] = other
    (tmp_path / "processor_config.json").write_text(json.dumps(fields))
    with pytest.raises(ValueError, match=f"sets {name} to {other!r}"):
        VISION.load_processor(tmp_path)


def test_images_of_results_are_refused_because_they_would_be_numbered_anew(folder: Path, tmp_path: Path) -> None:
    tools = ToolsConfig(use=("calculator",), max_images=1)
    with pytest.raises(ValueError, match=r"numbers the images of a conversation.*tools.max_images to 0"):
        TurnRenderer(renderer(folder), tools).check()
    TurnRenderer(renderer(folder), tools.model_copy(update={"max_images": 0})).check()
    for other in ("gemma3", "qwen3_5"):
        TurnRenderer(renderer(build(tmp_path / other, other)), tools).check()
