"""Loading and writing Hugging Face folders, and the ids that sampling must know."""

import json
import shutil

import pytest
import torch
from transformers import AutoTokenizer

from rl_core.distributed.shards import stored_weights
from rl_core.families import registry
from rl_core.models.loading import (
    banned_token_ids,
    load_model,
    load_processor,
    named_hf_weights,
    stop_token_ids,
    write_hf_folder,
)
from tests.rl_core.models.builders import FAMILIES, PATCH_GRIDS, model_config

TIED = {name for name, family in registry.FAMILIES.items() if family.ties_embeddings}


@pytest.mark.parametrize("family", FAMILIES)
def test_vision_padding_and_tokenless_ids_are_banned_and_nothing_else(family, model_folder):
    folder = model_folder(family)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    vocab_size = load_model(folder, model_config(folder)).config.get_text_config().vocab_size
    names = ["<|endoftext|>"]
    if family in PATCH_GRIDS:
        names += ["<|vision_start|>", "<|vision_end|>", "<|vision_pad|>", "<|image_pad|>", "<|video_pad|>"]
    if family == "internvl":
        names += ["<img>", "</img>", "<IMG_CONTEXT>", "<video>"]
    expected = {*tokenizer.convert_tokens_to_ids(names), *range(len(tokenizer), vocab_size)}
    assert banned_token_ids(folder) == tuple(sorted(expected))
    assert len(tokenizer) < vocab_size


def test_padding_that_ends_a_response_is_not_banned(model_folder, tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(model_folder("llama"), folder)
    path = folder / "generation_config.json"
    fields = json.loads(path.read_text())
    path.write_text(json.dumps(fields | {"eos_token_id": [fields["pad_token_id"], 5]}))
    end = AutoTokenizer.from_pretrained(folder).convert_tokens_to_ids("<|im_end|>")
    assert stop_token_ids(folder) == (fields["pad_token_id"], 5, end)
    assert fields["pad_token_id"] not in banned_token_ids(folder)


def test_a_folder_whose_ends_were_lost_is_written_with_all_of_them(model_folder, tmp_path):
    folder = shutil.copytree(model_folder("llama"), tmp_path / "model")
    (folder / "generation_config.json").unlink()
    config = json.loads((folder / "config.json").read_text())
    end, padding = AutoTokenizer.from_pretrained(folder).convert_tokens_to_ids(["<|im_end|>", "<|endoftext|>"])
    (folder / "config.json").write_text(json.dumps(config | {"eos_token_id": padding}))
    assert stop_token_ids(folder) == (padding, end)
    assert padding not in banned_token_ids(folder)
    write_hf_folder(load_model(folder, model_config(folder)), processor_folder=folder, folder=tmp_path / "out")
    assert json.loads((tmp_path / "out" / "generation_config.json").read_text())["eos_token_id"] == [padding, end]


@pytest.mark.parametrize("family", [*FAMILIES, "gemma4"])
def test_every_weight_is_named_once_and_a_tied_head_is_left_out(family, model_folder):
    model = load_model(model_folder(family), model_config(model_folder(family)))
    weights = dict(named_hf_weights(model))
    state = model.state_dict()
    assert set(state) - set(weights) == ({"lm_head.weight"} if family in TIED else set())
    for name, weight in weights.items():
        assert not weight.requires_grad
        assert weight.data_ptr() == state[name].data_ptr()  # the live weights, not copies


@pytest.mark.parametrize("family", [*FAMILIES, "gemma4"])
def test_a_written_folder_loads_and_equals_the_model(family, model_folder, tmp_path):
    folder = model_folder(family)
    model = load_model(folder, model_config(folder))
    with torch.no_grad():
        for _, weight in stored_weights(model):
            weight.add_(0.25)
    write_hf_folder(model, processor_folder=folder, folder=tmp_path / "out")
    again = load_model(tmp_path / "out", model_config(tmp_path / "out"))
    for (name, weight), (other, reloaded) in zip(named_hf_weights(model), named_hf_weights(again), strict=True):
        assert name == other
        assert torch.equal(weight, reloaded)
    assert {path.name for path in folder.iterdir()} == {path.name for path in (tmp_path / "out").iterdir()}
    assert stop_token_ids(tmp_path / "out") == stop_token_ids(folder)
    assert type(load_processor(tmp_path / "out")) is type(load_processor(folder))


def test_damaged_weights_are_an_error_that_names_the_folder(model_folder, tmp_path):
    folder = shutil.copytree(model_folder("llama"), tmp_path / "model")
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    with pytest.raises(OSError, match=f"the weights in {folder} are damaged .*: copy or download the model again"):
        load_model(folder, model_config(folder))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("family", FAMILIES)
def test_without_its_weights_a_model_is_the_same_in_all_else(family, dtype, model_folder):
    config = model_config(model_folder(family), dtype=dtype)
    expected, found = (load_model(model_folder(family), config, with_weights=read) for read in (True, False))
    for of_model in (torch.nn.Module.named_parameters, torch.nn.Module.named_modules):
        assert [name for name, _ in of_model(found)] == [name for name, _ in of_model(expected)]
    for mine, theirs in zip(found.parameters(), expected.parameters(), strict=True):
        assert (mine.shape, mine.dtype, mine.requires_grad) == (theirs.shape, theirs.dtype, theirs.requires_grad)
    buffers = dict(found.named_buffers())
    for name, buffer in expected.named_buffers():
        assert buffer.dtype == buffers[name].dtype and torch.equal(buffer, buffers.pop(name)), name
    assert not buffers
    assert [module.training for module in found.modules()] == [module.training for module in expected.modules()]
