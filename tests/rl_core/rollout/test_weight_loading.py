"""Strict weight names."""

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForImageTextToText

from rl_core.config.model import LoraConfig
from rl_core.models.loading import write_hf_folder
from rl_core.models.named_weights import named_adapters, named_hf_weights
from rl_core.models.trained_part import attach_lora
from rl_core.rollout.weight_loading import StrictWeights, expected_adapter_names, expected_weights
from tests.rl_core.rollout.engines import FAMILIES, build_folder, load_tiny_policy

EXPECTED = frozenset({"a.weight", "a.bias", "b.weight"})


def _weights(*names: str) -> list[tuple[str, torch.Tensor]]:
    return [(name, torch.full((1,), float(number))) for number, name in enumerate(names)]


@pytest.mark.parametrize("family", FAMILIES)
def test_the_expected_names_are_those_that_the_trainer_gives(family, tiny_folders):
    policy = load_tiny_policy(family, tiny_folders[family])
    names = expected_weights(policy.folder)
    assert names.keys() == {name for name, _ in named_hf_weights(policy.model)}
    assert {form.name for form in names.values()} == load_file(policy.folder / "model.safetensors").keys()


@pytest.mark.parametrize("family", FAMILIES)
def test_the_expected_adapters_are_those_that_the_trainer_gives(family, tiny_folders):
    lora = LoraConfig(rank=2, target_modules=("q_proj", "down_proj"))
    policy = load_tiny_policy(family, tiny_folders[family])
    names = expected_weights(policy.folder)
    attach_lora(policy.model, lora, run_seed=1)
    adapters = expected_adapter_names(policy.folder, lora)
    assert adapters == {name for name, _ in named_adapters(policy.model)}
    assert names.keys() == {name for name, _ in named_hf_weights(policy.model, merged=False)}
    assert len(adapters) == 2 * 2 * 2  # matrices x layers x blocks


@pytest.mark.parametrize(
    ("family", "there"),
    [
        ("gemma3", "vision_tower.vision_model.post_layernorm.weight"),
        ("llava_onevision", "vision_tower.vision_model.post_layernorm.weight"),
        ("qwen3_vl_moe", "model.language_model.layers.0.mlp.experts.down_proj"),
    ],
)
def test_files_are_as_published_when_they_are_made_and_when_they_are_written_again(family, there, tmp_path):
    folder = build_folder(tmp_path / "made", family)
    model = AutoModelForImageTextToText.from_pretrained(folder)
    write_hf_folder(model, processor_folder=folder, folder=tmp_path / "written")
    forms = expected_weights(folder)
    assert there in {form.name for form in forms.values()}
    for stored in (load_file(path / "model.safetensors") for path in (folder, tmp_path / "written")):
        assert stored.keys() == {form.name for form in forms.values()}
        for name, weight in named_hf_weights(model):
            form = forms[name]
            assert torch.equal(stored[form.name], weight.mT if form.is_transposed else weight)
    turned = {name.rpartition(".")[2] for name, form in forms.items() if form.is_transposed}
    assert turned == ({"gate_up_proj", "down_proj"} if family == "qwen3_vl_moe" else set())


def test_complete_weights_pass_unchanged():
    given = _weights("b.weight", "a.bias", "a.weight")
    strict = StrictWeights(given, expected=EXPECTED)
    assert list(strict) == given
    strict.check()


def test_every_wrong_name_is_reported_and_not_loaded():
    strict = StrictWeights(_weights("a.weight", "c.weight", "a.weight", "b.weight"), expected=EXPECTED)
    assert [name for name, _ in strict] == ["a.weight", "b.weight"]
    with pytest.raises(ValueError) as error:
        strict.check()
    assert "1 missing (a.bias); 1 unknown (c.weight); 1 given twice (a.weight)" in str(error.value)
