"""The sizes from a config.json equal the sizes of the model with its weights."""

import re
from typing import get_args

import pytest
from safetensors import safe_open

from rl_core.config.model import FamilyName, PretrainedModel, TinyModel
from rl_core.families.registry import PUBLISHED, vision_modules
from rl_core.models.tiny import build_tiny_model
from rl_core.planning.model_sizes import model_sizes, read_sizes, sizes_of_config


@pytest.mark.parametrize("family", get_args(FamilyName))
@pytest.mark.parametrize("sizes", [{}, {"num_key_value_heads": 4, "vision_depth": 2, "num_layers": 2}])
def test_the_sizes_of_a_tiny_model_are_those_of_its_weights(family, sizes, tmp_path):
    source = TinyModel(type="tiny", family=family, **sizes)
    build_tiny_model(source, tmp_path, corpus=["How many objects are there? 3"] * 4, seed=1)
    with safe_open(tmp_path / "model.safetensors", framework="pt") as file:
        weights = {name: file.get_tensor(name).numel() for name in file.keys()}  # noqa: SIM118 - no mapping
    found = read_sizes(tmp_path / "config.json")
    assert found is not None
    assert found.parameters == sum(weights.values())
    seeing = [number for name, number in weights.items() if re.fullmatch(vision_modules(), name)]
    assert found.vision_parameters == sum(seeing)
    assert found.vision_heads == (source.num_heads if found.vision_parameters else 0)
    as_planned = model_sizes(source.model_copy(update={"max_vocab_size": found.vocab_size}))
    assert as_planned == found, "what is planned before the folder is written must be what is written"


def test_a_folder_without_config_json_is_no_checkpoint(tmp_path):
    with pytest.raises(ValueError, match=r"has no config\.json"):
        model_sizes(PretrainedModel(type="pretrained", path=str(tmp_path)))


@pytest.mark.parametrize(
    ("others", "words"),
    [
        (["adapter_model.safetensors", "training_args.bin"], "and no whole weights: merge it first"),
        (["adapter_model.safetensors", "config.json"], "and no whole weights: merge it first"),
        (
            ["config.json", "model.safetensors"],
            r"beside whole weights, .*: remove its adapter_\* files to take the weights",
        ),
        (["config.json", "pytorch_model-00001-of-00002.bin"], "beside whole weights"),
    ],
)
def test_a_folder_with_an_adapter_is_refused(tmp_path, others, words):
    (tmp_path / "adapter_config.json").write_text('{"base_model_name_or_path": "owner/base"}')
    for name in others:
        (tmp_path / name).write_text("{}")
    with pytest.raises(ValueError, match=rf"holds a LoRA adapter \(adapter_config.json\) of owner/base {words}"):
        model_sizes(PretrainedModel(type="pretrained", path=str(tmp_path)))


def test_a_hub_checkpoint_that_was_never_downloaded_has_no_sizes_yet():
    assert model_sizes(PretrainedModel(type="pretrained", path="nobody/never-downloaded")) is None


def test_code_beside_a_config_is_not_run():
    fields = {"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 1, "vocab_size": 300}
    code = {"auto_map": dict.fromkeys(("AutoConfig", "AutoModelForCausalLM"), "evil.Model")}
    assert sizes_of_config(fields | code) == sizes_of_config(fields)


@pytest.mark.parametrize(
    ("field", "value", "why"),
    [
        ("num_hidden_layers", "many", r": \w+: .*num_hidden_layers"),
        ("num_hidden_layers", 10**9, ""),
        ("hidden_size", 10**12, ""),
    ],
)
def test_a_config_that_transformers_cannot_build_is_refused_at_once(field, value, why):
    with pytest.raises(ValueError, match=f"transformers cannot build the model{why}"):
        sizes_of_config({"model_type": "llama", field: value})


PUBLISHED_PARAMETERS = {
    "Qwen/Qwen2.5-VL-3B-Instruct": 3_754_622_976,
    "Qwen/Qwen2.5-VL-7B-Instruct": 8_292_166_656,
    "Qwen/Qwen3-VL-4B-Instruct": 4_437_815_808,
    "Qwen/Qwen2.5-7B-Instruct": 7_615_616_512,
    "Qwen/Qwen2.5-1.5B-Instruct": 1_543_714_304,
    "Qwen/Qwen3-30B-A3B": 30_532_122_624,
    "Qwen/Qwen2.5-VL-32B-Instruct": 33_452_718_336,
    "Qwen/Qwen2.5-VL-72B-Instruct": 73_410_777_344,
}
"""Totals of the checkpoints' safetensors, as the hub's pages tell them."""


def test_a_known_checkpoint_has_its_published_number_of_parameters():
    assert PUBLISHED_PARAMETERS.keys() == PUBLISHED.keys()
    for name, parameters in PUBLISHED_PARAMETERS.items():
        sizes = model_sizes(PretrainedModel(type="pretrained", path=name))
        assert sizes is not None
        assert sizes.parameters == parameters, name
