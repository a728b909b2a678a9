"""The tiny models: complete folders of real families, the same to the bit for equal arguments."""

import hashlib
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import AutoModelForCausalLM, AutoModelForImageTextToText, AutoProcessor, AutoTokenizer

from rl_core.config.model import Family, TinyModel
from rl_core.models.tiny import VISION_FAMILIES, build_tiny_model

CORPUS = ("How many objects are there?", *(f"<answer>{number}</answer>" for number in range(10)))
QUESTION = "How many objects are there?"


def tiny_source(family: str, **sizes: int) -> TinyModel:
    return TinyModel.model_validate({"type": "tiny", "family": family, **sizes})


def folder_digests(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}


@pytest.mark.parametrize("family", get_args(Family))
def test_a_tiny_model_loads_through_the_auto_classes_and_answers_its_chat_prompt(family: str, tmp_path: Path) -> None:
    build_tiny_model(tiny_source(family, num_layers=1, vision_depth=2), tmp_path, corpus=CORPUS, seed=1)
    messages = [{"role": "user", "content": QUESTION}]
    if family in VISION_FAMILIES:
        processor = AutoProcessor.from_pretrained(tmp_path)
        parts = [{"type": "image"}, {"type": "text", "text": QUESTION}]
        text = processor.apply_chat_template([{"role": "user", "content": parts}], add_generation_prompt=True)
        inputs = processor(text=[text], images=[Image.fromarray(np.zeros((84, 84, 3), np.uint8))], return_tensors="pt")
        model = AutoModelForImageTextToText.from_pretrained(tmp_path)
        assert (inputs["input_ids"] == model.config.image_token_id).sum() == 9
    else:
        tokenizer = AutoTokenizer.from_pretrained(tmp_path)
        text = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
        inputs = tokenizer([text], return_tensors="pt")
        model = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert text.startswith("<|im_start|>user\n") and text.endswith("<|im_end|>\n<|im_start|>assistant\n")
    logits = model(**inputs).logits
    assert logits.shape == (1, inputs["input_ids"].shape[1], model.config.get_text_config().vocab_size)
    assert torch.isfinite(logits).all()


def test_equal_arguments_give_equal_files_whatever_the_global_generator_holds(tmp_path: Path) -> None:
    source = tiny_source("qwen2_5_vl", num_layers=1, vision_depth=1)
    for number, name in enumerate(("first", "second")):
        torch.manual_seed(number)
        build_tiny_model(source, tmp_path / name, corpus=CORPUS, seed=1)
    build_tiny_model(source, tmp_path / "other_seed", corpus=CORPUS, seed=2)
    first = folder_digests(tmp_path / "first")
    assert first == folder_digests(tmp_path / "second")
    assert first["model.safetensors"] != folder_digests(tmp_path / "other_seed")["model.safetensors"]


def test_bfloat16_holds_the_rounded_float32_weights(tmp_path: Path) -> None:
    source = tiny_source("llama", num_layers=1)
    build_tiny_model(source, tmp_path / "exact", corpus=CORPUS, seed=1)
    build_tiny_model(source, tmp_path / "rounded", corpus=CORPUS, seed=1, dtype="bfloat16")
    exact = AutoModelForCausalLM.from_pretrained(tmp_path / "exact").state_dict()
    rounded = AutoModelForCausalLM.from_pretrained(tmp_path / "rounded").state_dict()
    for name, weight in rounded.items():
        assert weight.dtype == torch.bfloat16
        assert torch.equal(weight, exact[name].bfloat16())
