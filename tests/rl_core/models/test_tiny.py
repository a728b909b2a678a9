"""The tiny models: complete folders of real families, the same to the bit for equal arguments."""

from inspect import signature

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import AutoModelForCausalLM, AutoModelForImageTextToText, AutoProcessor

from rl_core.config.model import TinyModel
from rl_core.digests import folder_records
from rl_core.families.registry import FAMILIES
from rl_core.models.tiny import build_tiny_model

CORPUS = ("How many objects are there?", *(f"<answer>{number}</answer>" for number in range(10)))


def test_equal_arguments_give_equal_files_whatever_the_global_generator_holds(tmp_path):
    source = TinyModel(type="tiny", family="qwen2_5_vl", num_layers=1, vision_depth=1)
    for number, name in enumerate(("first", "second")):
        torch.manual_seed(number)
        build_tiny_model(source, tmp_path / name, corpus=CORPUS, seed=1)
    build_tiny_model(source, tmp_path / "other_seed", corpus=CORPUS, seed=2)
    first = folder_records(tmp_path / "first")
    assert first == folder_records(tmp_path / "second")
    assert first["model.safetensors"] != folder_records(tmp_path / "other_seed")["model.safetensors"]


def test_bfloat16_holds_the_rounded_float32_weights(tmp_path):
    source = TinyModel(type="tiny", family="llama", num_layers=1)
    build_tiny_model(source, tmp_path / "exact", corpus=CORPUS, seed=1)
    build_tiny_model(source, tmp_path / "rounded", corpus=CORPUS, seed=1, dtype="bfloat16")
    exact = AutoModelForCausalLM.from_pretrained(tmp_path / "exact").state_dict()
    rounded = AutoModelForCausalLM.from_pretrained(tmp_path / "rounded").state_dict()
    for name, weight in rounded.items():
        assert weight.dtype == torch.bfloat16
        assert torch.equal(weight, exact[name].bfloat16())


@pytest.mark.parametrize("family", [name for name, family in FAMILIES.items() if family.vision is not None])
def test_the_language_model_sees_an_image_from_the_first_step_on(family: str, tmp_path) -> None:
    """The tokens of an image differ about as much as those of a text. Where it is a sixth of that, as in GLM-4.1V with
    weights of the published spread, the quickstart learns nothing: what attention adds to a token drowns it."""
    source = TinyModel(type="tiny", family=family)
    build_tiny_model(source, tmp_path, corpus=CORPUS, seed=1)
    model = AutoModelForImageTextToText.from_pretrained(tmp_path)
    processor = AutoProcessor.from_pretrained(tmp_path)
    noise = np.random.default_rng(1).integers(0, 256, (84, 84, 3), dtype=np.uint8)
    made = processor(text=[processor.image_token], images=[Image.fromarray(noise)], return_tensors="pt")
    takes = signature(model.base_model.get_image_features).parameters
    with torch.no_grad():
        found = model.base_model.get_image_features(**{name: made[name] for name in made if name in takes})
    tokens = torch.cat(tuple(found.pooler_output)).reshape(-1, source.hidden_size)
    assert tokens.std(0).mean() > model.get_input_embeddings().weight.std() / 2
