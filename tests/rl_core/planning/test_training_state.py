"""The planned number of adapter parameters equals the number that the adapters have."""

from pathlib import Path
from typing import get_args

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText

from rl_core.config.model import Family, LoraConfig, TinyModel
from rl_core.models.lora import attach_lora
from rl_core.models.tiny import VISION_FAMILIES, tiny_config
from rl_core.models.tiny_tokenizer import train_tokenizer
from rl_core.planning.model_sizes import read_sizes
from rl_core.planning.training_state import adapter_parameters
from tests.rl_core.models.builders import trained_parameters

TARGETS = [
    {},
    {"target_modules": ("q_proj", "v_proj", "down_proj")},
    {"target_modules": r".*layers\.[02]\..*(up|k)_proj"},
    {"exclude_modules": r".*(visual|mlp).*"},
    {"exclude_modules": None},
    {"exclude_modules": ("visual", "o_proj", "qkv", "proj", "linear_fc1", "linear_fc2"), "target_modules": r".*_proj"},
]


@pytest.mark.parametrize("family", get_args(Family))
def test_the_count_is_exact(family: Family, tmp_path: Path) -> None:
    tokenizer = train_tokenizer(["How many objects are there? 3"] * 4, max_vocab_size=512, with_vision=True)
    source = TinyModel(type="tiny", family=family, num_layers=3, hidden_size=64, intermediate_size=80, vision_depth=2)
    tiny_config(source, tokenizer).save_pretrained(tmp_path)
    config = AutoConfig.from_pretrained(tmp_path)
    factory = AutoModelForImageTextToText if config.model_type in VISION_FAMILIES else AutoModelForCausalLM
    for options in TARGETS:
        lora = LoraConfig.model_validate({"rank": 4, **options})
        with torch.device("meta"):
            model = factory.from_config(config)
        attach_lora(model, lora, run_seed=1)
        counted = sum(parameter.numel() for parameter in trained_parameters(model))
        assert counted
        assert adapter_parameters(lora, read_sizes(tmp_path / "config.json")) == counted, options
