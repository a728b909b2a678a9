"""The tiny models: complete folders of real families, the same to the bit for equal arguments."""

import torch
from transformers import AutoModelForCausalLM

from rl_core.config.model import TinyModel
from rl_core.digests import folder_records
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
