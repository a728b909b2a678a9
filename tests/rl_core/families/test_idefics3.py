"""What Idefics3 and SmolVLM2 have that no other family has."""

import json
from pathlib import Path

import pytest
import torch
from transformers import AutoConfig, AutoModelForImageTextToText

from rl_core.config.model import TinyModel
from rl_core.families.registry import FAMILIES
from rl_core.models.tiny import build_tiny_model

VISION = FAMILIES["idefics3"].vision


@pytest.fixture(scope="module", params=["idefics3", "smolvlm"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp(request.param)
    source = TinyModel(type="tiny", family=request.param, num_layers=1, vision_depth=1)
    build_tiny_model(source, made, corpus=["How many?"] * 4, seed=1)
    return made


@pytest.mark.parametrize("side", [4, 7, 26])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_every_patch_of_a_tile_is_in_its_place(side: int, dtype: torch.dtype, folder: Path) -> None:
    config = AutoConfig.from_pretrained(folder)
    config.vision_config.image_size = side * config.vision_config.patch_size
    model = AutoModelForImageTextToText.from_config(config, dtype=dtype)
    tower, places = model.model.vision_model, []
    tower.embeddings.position_embedding.register_forward_pre_hook(lambda _, given: places.append(given[0][0].tolist()))
    tiles = torch.rand(1, 3, tower.embeddings.image_size, tower.embeddings.image_size, dtype=dtype)
    tower(pixel_values=tiles)
    VISION.prepare(model)
    tower(pixel_values=tiles)
    before, after = places
    assert after == list(range(side * side))
    assert (before == after) is (dtype == torch.float32 or side == 4)


def test_sizes_that_transformers_counts_otherwise_than_it_cuts_are_refused(folder: Path, tmp_path: Path) -> None:
    for path in folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    settings = json.loads((tmp_path / "processor_config.json").read_text())
    settings["image_processor"]["size"] = {"longest_edge": 100}
    (tmp_path / "processor_config.json").write_text(json.dumps(settings))
    with pytest.raises(ValueError, match="scales images to 100 pixels, of which its tiles of 56 are no share"):
        VISION.load_processor(tmp_path)
