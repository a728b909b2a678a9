"""A family is one file: no other place knows its names, and what cannot be trained is refused with its reason."""

import json
import re
from pathlib import Path

import pytest

from rl_core.families.refused import REASONS
from rl_core.families.registry import FAMILIES, family_of, find_family, vision_modules
from rl_core.planning.model_sizes import check_architecture

SOURCES = Path(__file__).parents[3]
NAMES_OF_FAMILIES = re.compile(r'"visual"|\.visual\b|grid_thw|model_type ==|startswith\("qwen|IMG_CONTEXT|image_pad')


def test_no_other_place_knows_the_names_of_a_family():
    files = [path for room in ("rl_core", "tasks", "flows", "startup") for path in (SOURCES / room).rglob("*.py")]
    outside = [path for path in files if path.parent.name != "families"]
    assert len(outside) > 300
    found = {str(path.relative_to(SOURCES)) for path in outside if NAMES_OF_FAMILIES.search(path.read_text())}
    assert found == set()


def test_every_file_with_a_family_is_one_of_its_name():
    files = {path.stem for path in (SOURCES / "rl_core/families").glob("*.py") if "\nFAMILY" in path.read_text()}
    assert files == FAMILIES.keys()


@pytest.mark.parametrize("name", [name for name, family in FAMILIES.items() if family.vision is not None])
def test_the_pattern_of_what_sees_names_the_modules_of_every_tower(name):
    places = FAMILIES[name].vision.places
    assert all(re.fullmatch(vision_modules(), f"model.{place}.blocks.0.mlp") for place in places)
    assert not re.fullmatch(vision_modules(), "model.language_model.layers.0.self_attn.q_proj")


@pytest.mark.parametrize("model_type", REASONS)
def test_what_cannot_be_trained_is_refused_with_its_reason(model_type, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": model_type}))
    with pytest.raises(ValueError, match=f"{model_type}.*{re.escape(REASONS[model_type])}"):
        check_architecture(tmp_path / "config.json")


@pytest.mark.parametrize("fields", [{}, {"model_type": None}, {"model_type": ["llama"]}, {"model_type": {}}])
def test_a_config_that_names_none_is_refused(fields):
    assert find_family(fields) is None
    with pytest.raises(ValueError, match="is none of"):
        family_of(fields)


def test_an_unknown_architecture_is_told_the_known_ones():
    with pytest.raises(ValueError, match=r"'brand_new' is none of .*internvl.*qwen3_vl"):
        family_of({"model_type": "brand_new"})


def test_a_text_model_of_transformers_needs_no_file_and_one_that_sees_does():
    assert family_of({"model_type": "olmo2"}).vision is None
    assert family_of({"model_type": "qwen3_5_text"}).engine == FAMILIES["qwen3_5"].engine
    with pytest.raises(ValueError, match=r"'llava_next' has a vision_config, and no family here says how it sees"):
        family_of({"model_type": "llava_next", "vision_config": {}})
