"""The counts from a config.json equal those of the real modules."""

import json
from pathlib import Path
from typing import get_args

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText, PreTrainedModel

from rl_core.config.model import Family, PretrainedModel, TinyModel
from rl_core.models.tiny_config import VISION_FAMILIES, tiny_config
from rl_core.models.tiny_tokenizer import train_tokenizer
from rl_core.planning.model_sizes import model_sizes, read_sizes, sizes_of_config

# config.json of Qwen2.5-VL-7B-Instruct as published: the language model's fields stand at the top level.
PUBLISHED = {
    "model_type": "qwen2_5_vl",
    "hidden_size": 3584,
    "intermediate_size": 18944,
    "max_position_embeddings": 128000,
    "num_attention_heads": 28,
    "num_hidden_layers": 28,
    "num_key_value_heads": 4,
    "tie_word_embeddings": False,
    "vocab_size": 152064,
    "vision_config": {
        "depth": 32,
        "hidden_size": 1280,
        "intermediate_size": 3420,
        "num_heads": 16,
        "in_chans": 3,
        "out_hidden_size": 3584,
        "patch_size": 14,
        "spatial_merge_size": 2,
        "temporal_patch_size": 2,
    },
}


def model_of(config_json: Path) -> PreTrainedModel:
    """The modules themselves, without memory for them."""
    config = AutoConfig.from_pretrained(config_json.parent)
    factory = AutoModelForImageTextToText if config.model_type in VISION_FAMILIES else AutoModelForCausalLM
    with torch.device("meta"):
        return factory.from_config(config)


def parameters_of(config_json: Path) -> int:
    return sum(parameter.numel() for parameter in model_of(config_json).parameters())


@pytest.mark.parametrize("family", get_args(Family))
@pytest.mark.parametrize("sizes", [{}, {"num_key_value_heads": 4, "vision_depth": 2, "num_layers": 2}])
def test_the_count_of_a_tiny_model_is_exact(family: Family, sizes: dict[str, int], tmp_path: Path) -> None:
    tokenizer = train_tokenizer(["How many objects are there? 3"] * 4, max_vocab_size=512, with_vision=True)
    source = TinyModel(type="tiny", family=family, **sizes)
    tiny_config(source, tokenizer).save_pretrained(tmp_path)
    counted = parameters_of(tmp_path / "config.json")
    assert read_sizes(tmp_path / "config.json").parameters == counted
    named = model_of(tmp_path / "config.json").named_parameters()
    in_vision = sum(parameter.numel() for name, parameter in named if name.startswith("model.visual."))
    assert read_sizes(tmp_path / "config.json").vision_parameters == in_vision
    vocabulary = read_sizes(tmp_path / "config.json").vocab_size
    as_planned = model_sizes(source.model_copy(update={"max_vocab_size": vocabulary}))
    assert as_planned.parameters == counted, "what is planned before the folder is written must be what is written"


def test_the_count_of_a_published_config_is_exact(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(PUBLISHED))
    sizes = read_sizes(path)
    assert sizes.parameters == parameters_of(path)
    assert 8.2e9 < sizes.parameters < 8.4e9
    assert sizes.key_value_size == 4 * 128


def test_grouped_heads_and_an_explicit_head_size_are_followed() -> None:
    fields = {**PUBLISHED, "model_type": "qwen3", "head_dim": 64, "num_key_value_heads": 2}
    fields.pop("vision_config")
    sizes = sizes_of_config(fields)
    assert (sizes.query_size, sizes.key_value_size) == (28 * 64, 2 * 64)


def test_an_unknown_architecture_is_named_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match="architecture 'mamba' is none of llama, qwen2"):
        sizes_of_config({"model_type": "mamba"})


def test_a_folder_without_config_json_is_no_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"has no config\.json"):
        model_sizes(PretrainedModel(type="pretrained", path=str(tmp_path)))


def test_a_hub_checkpoint_that_was_never_downloaded_has_no_sizes_yet() -> None:
    assert model_sizes(PretrainedModel(type="pretrained", path="nobody/never-downloaded")) is None
