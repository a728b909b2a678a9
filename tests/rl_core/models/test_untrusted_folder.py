"""A model folder with code in it: nothing of it runs, and nobody is asked at the terminal."""

import ast
import builtins
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from transformers import AutoConfig

from rl_core.data.chat import ChatRenderer
from rl_core.export.merged_check import transformers_log_probs
from rl_core.models.loading import load_model, load_processor
from rl_core.rollout.weight_loading import expected_weights
from tests.rl_core.bomb import Bomb
from tests.rl_core.models.builders import model_config, write_small_model

CODE = """
from pathlib import Path
Path({marker!r}).touch()
from transformers import PreTrainedConfig
class Stranger(PreTrainedConfig):
    model_type = "stranger"
"""
LOADERS: dict[str, Callable[[Path], object]] = {
    "model": lambda folder: load_model(folder, model_config(folder)),
    "processor": load_processor,
    "chat": lambda folder: ChatRenderer(folder, prompt_template=None, system_prompt=None),
    "weight names": expected_weights,
    "merged check": lambda folder: transformers_log_probs(folder, [], "float32"),
}


@pytest.fixture
def marker(tmp_path) -> Path:
    return tmp_path / "executed"


@pytest.fixture
def folder(tmp_path, marker, monkeypatch) -> Path:
    """A model whose config, tokenizer and processor name classes in a file of the folder."""
    folder = write_small_model(tmp_path / "model", "qwen2_5_vl")
    (folder / "stranger.py").write_text(CODE.format(marker=str(marker)))
    names = ("AutoConfig", "AutoModelForImageTextToText", "AutoProcessor", "AutoImageProcessor")
    auto_map: dict[str, object] = dict.fromkeys(names, "stranger.Stranger")
    auto_map["AutoTokenizer"] = ["stranger.Stranger", "stranger.Stranger"]
    for file in ("config.json", "tokenizer_config.json", "preprocessor_config.json", "processor_config.json"):
        change(folder / file, auto_map=auto_map)

    def asked(*_: object) -> str:
        raise AssertionError("a person was asked whether to run the code")

    monkeypatch.setattr(builtins, "input", asked)
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules"))
    return folder


def change(path: Path, **fields: object) -> None:
    content = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps(content | fields))


@pytest.mark.parametrize("loader", LOADERS.values(), ids=LOADERS)
def test_a_known_architecture_loads_by_the_librarys_own_code(folder, marker, loader):
    loader(folder)
    assert not marker.exists()


@pytest.mark.parametrize("loader", LOADERS.values(), ids=LOADERS)
def test_an_architecture_that_is_code_in_the_folder_is_refused(folder, marker, loader):
    change(folder / "config.json", model_type="stranger")
    change(folder / "tokenizer_config.json", tokenizer_class="StrangerTokenizer")
    with pytest.raises(ValueError, match="trust_remote_code"):
        loader(folder)
    assert not marker.exists()


def test_the_same_folder_would_run_its_code_for_who_trusts_it(folder, marker):
    """The control: the folder's code is where transformers finds it."""
    change(folder / "config.json", model_type="stranger")
    AutoConfig.from_pretrained(folder, trust_remote_code=True)
    assert marker.exists()


def test_weights_that_are_a_program_are_refused(folder, marker):
    (folder / "model.safetensors").unlink()
    torch.save({"model.weight": Bomb(marker)}, folder / "pytorch_model.bin")
    with pytest.raises(Exception, match=r"[Ww]eights.only"):
        load_model(folder, model_config(folder))
    assert not marker.exists()


def test_every_load_says_that_it_does_not_trust():
    """Left out, transformers asks at the terminal."""
    root = Path(__file__).parents[3]
    silent = [
        f"{path.relative_to(root)}:{node.lineno}"
        for room in ("rl_core", "tasks", "flows", "sightline_tools")
        for path in sorted((root / room).rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "from_pretrained"
        if "trust_remote_code=False" not in {ast.unparse(keyword) for keyword in node.keywords}
    ]
    assert silent == []
